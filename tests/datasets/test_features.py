"""Features as models take them, against the rule written out row by row."""

import numpy as np
import pytest
import scipy.sparse as sp

from specformer.datasets import dense_features, sparse_features
from specformer.graphs import Graph

ROWS = [[1.0, 3.0, 0.0], [0.5, 0.0, 0.25], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
NO_EDGES = sp.csr_array((4, 4))


@pytest.mark.parametrize(("scaling", "scaled"), [("rows", True), ("none", False)])
def test_a_row_that_sums_to_more_than_one_is_divided_by_its_sum(scaling, scaled):
    expected = [[x / max(sum(row), 1.0) for x in row] if scaled else row for row in ROWS]
    kept = Graph(NO_EDGES, x=np.array(ROWS)), Graph(NO_EDGES, x=sp.csr_array(ROWS))
    for graph in kept:
        found = dense_features(graph, scaling)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, rtol=1e-7)
    sparse = sparse_features(kept[1], scaling)
    assert sparse.nnz == 5
    np.testing.assert_allclose(sparse.toarray(), expected, rtol=1e-7)
