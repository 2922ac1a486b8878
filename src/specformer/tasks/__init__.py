"""What ``train``, ``resume``, ``predict``, ``tune`` and ``compare`` do, for every kind of data."""
