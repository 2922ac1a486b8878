"""Files and objects that hold graphs: CSV, npz, SMILES and PyTorch Geometric."""
