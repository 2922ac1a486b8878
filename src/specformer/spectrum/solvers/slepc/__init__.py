"""SLEPc over MPI, in processes of its own."""
