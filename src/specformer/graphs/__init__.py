"""Reading and checking graphs, and the normalised Laplacian. NumPy and SciPy only."""

from specformer.graphs.colours import fragment_counts
from specformer.graphs.columns import Columns
from specformer.graphs.convert import as_adjacency, as_graph
from specformer.graphs.formats.csv_folder import read_csv_folder
from specformer.graphs.formats.graph_set_pyg import graph_set_from_pyg
from specformer.graphs.formats.molecule_table import read_molecules
from specformer.graphs.formats.npz_file import read_graph_set, read_npz, write_graph_set, write_npz
from specformer.graphs.formats.read import read_graph
from specformer.graphs.formats.smiles import Molecules, read_smiles
from specformer.graphs.graph import Graph
from specformer.graphs.graph_set import GraphSet
from specformer.graphs.laplacian import normalised_laplacian
from specformer.graphs.ring_search import RingSet, find_rings

__all__ = [
    "Columns",
    "Graph",
    "GraphSet",
    "Molecules",
    "RingSet",
    "as_adjacency",
    "as_graph",
    "find_rings",
    "fragment_counts",
    "graph_set_from_pyg",
    "normalised_laplacian",
    "read_csv_folder",
    "read_graph",
    "read_graph_set",
    "read_molecules",
    "read_npz",
    "read_smiles",
    "write_graph_set",
    "write_npz",
]
