"""What ``train``, ``resume``, ``predict`` and ``tune`` do, for nodes, graphs and signals."""
