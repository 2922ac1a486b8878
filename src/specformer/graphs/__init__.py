"""Reading and checking graphs, and the normalised Laplacian. NumPy and SciPy only."""

from specformer.graphs.convert import as_adjacency, as_graph
from specformer.graphs.csv_folder import read_csv_folder
from specformer.graphs.graph import Graph
from specformer.graphs.laplacian import normalised_laplacian
from specformer.graphs.npz_file import read_npz, write_npz
from specformer.graphs.read import read_graph

__all__ = [
    "Graph",
    "as_adjacency",
    "as_graph",
    "normalised_laplacian",
    "read_csv_folder",
    "read_graph",
    "read_npz",
    "write_npz",
]
