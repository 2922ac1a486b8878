"""Files that other programs write, made with the libraries that know them, and molecules."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import scipy.io
import scipy.sparse as sp
import torch
from tests.graphs.formats.strange_files import (
    AGES,
    CHAIN,
    EDGES,
    LABELLED,
    NODES,
    PEOPLE,
    PETS,
    TO_SAVE,
    Meant,
    Molecules,
    Strange,
    alone,
)
from torch_geometric.data import Data, HeteroData, InMemoryDataset


def people(label: str = "pet", **more: Any) -> nx.Graph:
    graph = nx.Graph(**more)
    for name, age, pet in (("ann", 30, "dog"), ("bob", 41, "cat"), ("cy", 29, "")):
        graph.add_node(name, age=age, **({label: pet} if pet else {}))
    graph.add_edges_from(CHAIN)
    return graph


def weighted() -> nx.Graph:
    graph = people()
    graph.add_edge("ann", "bob", weight=2.5)
    return graph


MATRIX = sp.csr_array(np.array([[0, 1, 0], [1, 0, 2.5], [0, 2.5, 0]]))
FIRST = ("0", "1", "2")


def data() -> Data:
    ends = torch.tensor([[0, 1], [1, 2]])
    return Data(x=torch.tensor([[30.0], [41], [29]]), edge_index=ends, y=torch.tensor([0, 1, -1]))


def saving(content: Any) -> Callable[[Path], None]:
    return lambda path: torch.save(content, path)  # noqa: TID251 - as users have them


def in_memory(count: int) -> Any:
    joined, slices = InMemoryDataset.collate([data()] * count)
    return joined.to_dict(), slices, Data


def parquet(**columns: Any) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table(columns), path)

    return write


def node_link(links: str = "links") -> dict[str, Any]:
    """As NetworkX's ``node_link_data`` has it, whose name for links differs between versions."""
    nodes = [{"id": name, **told} for name, told in people().nodes(data=True)]
    ends = [{"source": one, "target": other} for one, other in CHAIN]
    return {"directed": False, "multigraph": False, "graph": {}, "nodes": nodes, links: ends}


GRAPHML = """<?xml version="1.0"?><graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="d0" for="node" attr.name="age" attr.type="int"><default>18</default></key>
<key id="d1" for="node" attr.name="paid" attr.type="boolean"/>
<key id="d2" for="edge" attr.name="weight" attr.type="double"><default>0.5</default></key>
<graph edgedefault="undirected"><node id="ann"><data key="d0">30</data><data key="d1">true</data>
</node><node id="bob"/><node id="cy"><data key="d1">false</data></node>
<edge source="ann" target="bob"><data key="d2">2</data></edge><edge source="bob" target="cy"/>
</graph></graphml>"""
GML = """Creator "Mark Newman"
graph [ directed 0
  node [ id 1 label "Ann" value "dog" ] node [ id 2 label "Bob" value "cat" ]
  node [ id 3 label "Cy" value "cat" ]
  edge [ source 1 target 2 ] edge [ source 2 target 3 ] edge [ source 2 target 1 ]
]
"""
NEWMAN = Meant(
    ("Ann", "Bob", "Cy"), {("Ann", "Bob"): 1.0, ("Bob", "Cy"): 1.0}, {}, ("dog", "cat", "cat")
)
PLAIN = Meant(FIRST, {("0", "1"): 1.0, ("1", "2"): 2.5})
OBJECTS = (
    "{}: holds Python objects other than tensors and PyG's Data, which are not loaded, as they may "
    "run code; pass a Data, a list of them, or the data.pt of a data set in memory"
)

FORMATS = [
    alone("a.graphml", lambda path: nx.write_graphml(people(), path), LABELLED, label="pet"),
    alone("b.graphml", lambda path: nx.write_graphml(people("label"), path), LABELLED),
    alone("b.graphml.gz", lambda path: nx.write_graphml(people("label"), path), LABELLED),
    alone("c.graphml", lambda path: nx.write_graphml(weighted(), path),
          Meant(edges={("ann", "bob"): 2.5, ("bob", "cy"): 1.0}, features=AGES, labels=PETS),
          label="pet"),
    alone("d.graphml", lambda path: nx.write_graphml(people(), path),
          Meant(features={"pet": list(PETS)}, labels=("30", "41", "29")), label="age"),
    alone("e.graphml", "<graphml><graph>", "e.graphml: cannot be read as GraphML: no element "
          "found: line 1, column 16"),
    alone("f.graphml", lambda path: nx.write_graphml(people(), path),
          "f.graphml: defines its nodes and edges itself; leave out --id", id="age"),
    alone("usual.graphml", GRAPHML, Meant(edges={("ann", "bob"): 2.0, ("bob", "cy"): 0.5},
                                          features={"age": [30, 18, 18], "paid": [1, None, 0]})),
    alone("a.json", lambda path: path.write_text(json.dumps(node_link())), LABELLED, label="pet"),
    alone("b.json", lambda path: path.write_text(json.dumps(node_link("edges"))), LABELLED,
          label="pet"),
    alone("d3.json", '{"nodes": [{"name": "A", "group": 1}, {"name": "B", "group": 2}], "links": '
          '[{"source": 0, "target": 1, "weight": 3}]}',
          Meant(("0", "1"), {("0", "1"): 3.0}, {}, ("1", "2")), label="group"),
    alone("names.json", '{"nodes": [{"name": "A"}, {"name": "B"}], "links": [{"source": "A", '
          '"target": "B"}]}', "names.json: column 'source', edge 1: there is no node 'A' in "
          "names.json; add it there, or remove the edges"),
    alone("list.json", "[1, 2]", "list.json: has no lists of objects called 'nodes' and 'links'"),
    alone("cut.json", '{"nodes": [', "cut.json: cannot be read as JSON: Expecting value: line 1 "
          "column 12 (char 11)"),
    alone("a.gexf", lambda path: nx.write_gexf(people("class"), path), LABELLED),
    alone("a.gml", lambda path: nx.write_gml(people(), path),
          Meant(PEOPLE, {("ann", "bob"): 1.0, ("bob", "cy"): 1.0}, AGES, PETS),
          label="pet"),
    alone("b.gml", GML, NEWMAN, label="value"),
    alone("c.gml", "graph [ node [ id 1 ]", "c.gml: cannot be read as GML: expected ']', found "
          "EOF at (2, 1)"),
    alone("a.mtx", lambda path: scipy.io.mmwrite(path, MATRIX),
          Meant(("1", "2", "3"), {("1", "2"): 1.0, ("2", "3"): 2.5})),
    alone("b.mtx", "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n3 2\n",
          Meant(("1", "2", "3"), {("1", "2"): 1.0, ("2", "3"): 1.0})),
    alone("c.mtx", "%%MatrixMarket matrix coordinate pattern general\n2 3 1\n2 1\n",
          "c.mtx: a matrix of 2 × 3 is not square, as adjacency matrices are"),
    alone("d.mtx", "1 2\n", "d.mtx: cannot be read as MatrixMarket: Line 1: Not a Matrix Market "
          "file. Missing banner"),
    alone("a.npz", lambda path: sp.save_npz(path, MATRIX), PLAIN),
    alone("b.npz", lambda path: sp.save_npz(path, sp.coo_array(MATRIX)), PLAIN),
    alone("c.npz", lambda path: np.savez(path, adj=MATRIX.toarray()),
          "c.npz: has no 'edge_index'; a file of one graph needs edge_index; this one has "
          "'adj'"),
    alone("e.npz", lambda path: np.savez(path, edge_index=[[0, 1], [1, 2]], y=[0, 1, 1, 0]),
          Meant((*FIRST, "3"), {("0", "1"): 1.0, ("1", "2"): 1.0}, {}, ("0", "1", "1", "0"))),
    alone("f.npz", lambda path: np.savez(path, edge_index=[[0, 1], [1, 2]]),
          "f.npz: has no 'num_nodes', and neither x nor y to count the nodes of"),
    alone("i.pt", saving({"edge_index": data().edge_index, "y": torch.tensor([0, 1, 1, 0])}),
          Meant((*FIRST, "3"), {("0", "1"): 1.0, ("1", "2"): 1.0}, {}, ("0", "1", "1", "0"))),
    alone("j.pt", saving((data(), {"x": 1})), "j.pt: its second part does not cut the "
          "first into graphs; pass a Data, a list of them, or the data.pt of a data set in memory"),
    alone("g.graphml", lambda path: nx.write_graphml(people("label").to_directed(), path),
          LABELLED),
    alone("d.npz", lambda path: np.savez(path, edge_index=[[1, 2], [2, 3]], num_nodes=3),
          "d.npz: edge_index[1, 1] is 3, outside 0..2"),
    alone("a.pt", saving(data()), Meant(FIRST, {("0", "1"): 1.0, ("1", "2"): 1.0},
                                        {"0": [30, 41, 29]}, ("0", "1", None))),
    alone("b.pt", saving(in_memory(1)), Meant(FIRST, {("0", "1"): 1.0, ("1", "2"): 1.0},
                                              {"0": [30, 41, 29]}, ("0", "1", None))),
    alone("c.pt", saving(data().edge_index), Meant(FIRST, {("0", "1"): 1.0, ("1", "2"): 1.0})),
    alone("d.pt", saving(in_memory(4)), "d.pt: holds 4 graphs, where a single graph is needed"),
    alone("e.pt", saving(HeteroData()), OBJECTS.format("e.pt")),
    alone("f.pt", saving(np.zeros(3)), OBJECTS.format("f.pt")),
    alone("g.pt", saving({"weight": torch.ones(3)}), "g.pt: is not a graph but dict; pass a Data, "
          "a list of them, or the data.pt of a data set in memory"),
    alone("h.pt", saving(data()), "h.pt: has no columns with names; leave --label out", label="y"),
]  # fmt: skip

PARQUET = [
    Strange("Parquet", {
        "edges.parquet": parquet(source=["ann", "bob"], target=["bob", "cy"]),
        "nodes.parquet": parquet(id=["ann", "bob", "cy"], age=[30, 41, 29],
                                 label=["dog", "cat", None]),
    }, LABELLED),
    alone("k.parquet", parquet(source=[1, 2], target=[2, 3], weight=[0.5, 2.0]),
          Meant(("1", "2", "3"), {("1", "2"): 0.5, ("2", "3"): 2.0})),
    Strange("Parquet of lists", {
        "edges.csv": EDGES, "nodes.parquet": parquet(id=["ann"], vector=[[1.0, 2.0]]),
    }, "nodes.parquet: column 'vector' holds several values in a cell; write one column for each"),
    Strange("both forms", {"edges.csv": EDGES, "nodes.csv": NODES,
                           "nodes.parquet": parquet(id=["ann"])},
            ".: holds both nodes.csv and nodes.parquet; remove one of them"),
    alone("m.parquet", parquet(smiles=["CCO", "N"], y=[1.5, None]),
          Molecules(("CCO", "N"), {"y": [1.5, None]})),
]  # fmt: skip

SDF = """ethanol
     RDKit

  3  2  0  0  0  0  0  0  0  0999 V2000
    0.0000    0.0000    0.0000 C   0  0
    1.0000    0.0000    0.0000 C   0  0
    2.0000    0.0000    0.0000 O   0  0
  1  2  1  0
  2  3  1  0
M  END
>  <logS>
1.5

$$$$
"""
TARGETS = {"logS": [1.5, 2.0]}
TWO = Molecules(("CCO", "N"), TARGETS)

MOLECULES = [
    alone("a.csv", "smiles,logS\nCCO,1.5\nN,2\n", TWO),
    alone("b.csv", "Canonical SMILES;logS\nCCO;1,5\nN;2\n", TWO),
    alone("c.csv", "logS,canonical_smiles\n1.5,CCO\n2,N\n", TWO),
    alone("d.csv", "mol,logS\nCCO,1.5\nN,2\n", TWO),
    alone("e.csv", "Drug,logS\nCCO,1.5\nN,2\n", TWO, smiles="Drug"),
    alone("e.csv", "Drug,logS\nCCO,1.5\nN,2\n", "e.csv: there is no column 'smiles', only 'Drug', "
          "'logS'; say which one holds SMILES with --smiles-column, or the ends of an edge with "
          "--source and --target"),
    alone("f.csv", "CanonicalSMILES,IsomericSMILES,logS\nCCO,CCO,1.5\n",
          "f.csv: 'CanonicalSMILES', 'IsomericSMILES' may hold the SMILES; say which with "
          "--smiles-column"),
    alone("g.csv", "CID,smiles,logS\n702,CCO,1.5\n222,N,2\n",
          Molecules(("CCO", "N"), TARGETS, ("702", "222"))),
    alone("o.csv", "index,smiles,logS\n0,CCO,1.5\n1,N,2\n",
          Molecules(("CCO", "N"), TARGETS, ("0", "1"))),
    alone("h.csv", "smiles,a,b\nCCO,1,x\nN,0,y\n", Molecules(("CCO", "N"), {"a": [1, 0]})),
    alone("i.csv", "smiles,a,b\nCCO,1,3\nN,0,4\n", Molecules(("CCO", "N"), {"b": [3, 4]}),
          targets=("b",)),
    alone("j.csv", "smiles,y,Split\nCCO,1,train\nN,2,valid\nO,3,test\n",
          Molecules(("CCO", "N", "O"), {"y": [1, 2, 3]}, parts=("train", "val", "test"))),
    alone("k.csv.gz", gzip.compress(b"smiles,logS\nCCO,1.5\nN,2\n", mtime=0), TWO),
    alone("l.csv", "smiles,y\nCCO,1 kg\nN,2\n", "l.csv: column 'y', row 2: '1 kg' is not a number; "
          "leave it empty if it is missing, write classes as 0 and 1, or use --targets"),
    alone("m.csv", "CCO,1.5\nN,2\n",
          "m.csv: the first row must name the columns, and '1.5' looks like a value"),
    alone("m.csv", "CCO,a\nN,b\n", "m.csv: the first row must name the columns, and 'CCO' is a "
          "molecule", smiles="CCO"),
    alone("p.csv", "smiles,MW,activity\nCCO,46,yes\nN,17,no\n",
          Molecules(("CCO", "N"), {"MW": [46, 17]})),
    alone("q.csv", "\ufeffsmiles;pIC50;name\r\nCCO;5,5;a\r\nN;2;b\r\n",
          Molecules(("CCO", "N"), {"pIC50": [5.5, 2]})),
    alone("n.csv", "a,b\n1,2\n", "n.csv: there is no column 'smiles', only 'a', 'b'; say which one "
          "holds SMILES with --smiles-column, or the ends of an edge with --source and --target"),
    alone("people.csv", NODES, "people.csv: there is no column 'smiles', only 'id', 'age', "
          "'label'; say which one holds SMILES with --smiles-column, or put it into a folder as "
          "nodes.csv, beside edges.csv, if its rows are nodes"),
    alone("matrix.csv", ",a,b,c,d\na,0,1,0,1\nb,1,0,1,0\nc,0,1,0,1\nd,1,0,1,0\n",
          f"matrix.csv: looks like an adjacency matrix; {TO_SAVE.partition(', ')[2]}"),
    alone("r.csv", "smiles,ic50\nCCO,1.5 nM\nN,2 nM\n",
          Molecules(("CCO", "N"), {"ic50": [1.5, 2]})),
    alone("s.csv", "smiles,activity,note\nCCO,active,a\nN,inactive,b\nO,active,c\nC,inactive,d\n",
          Molecules(("CCO", "N", "O", "C"), {"activity": [0, 1, 0, 1]})),
    alone("t.csv", "smiles,fold,logS\nCCO,0,1.5\nN,1,2\n", TWO),
    alone("u.csv", "smiles,vendor_id,logS\nCCO,17,1.5\nN,18,2\n", TWO),
    alone("v.csv", "smiles,mol no.,y\n" + "".join(f"{'C' * n},{n},{n % 3}\n" for n in range(1, 25)),
          Molecules(tuple("C" * n for n in range(1, 25)), {"y": [n % 3 for n in range(1, 25)]})),
    alone("x.csv", "smi,logS\nCCO,1.5\nN,2\n", TWO),
    alone("y.csv", "smiles,ic50\nCCO,>1.5\nN,2\n", "y.csv: column 'ic50', row 2: '>1.5' has a sign "
          "before the number; write it without, or leave the cell empty if it is only a bound"),
    alone("z.csv", 'smiles,price\nCCO,"1,200"\nN,"2,000"\n', "z.csv: column 'price', row 2: "
          "'1,200' has a comma; write thousands without it, decimals with a point, and several "
          "values into a column each"),
    alone("comma.csv", 'smiles,logS\nCCO,"-0,77"\nN,"1,5"\n', Molecules(("CCO", "N"), {"logS": [
          np.float32(-0.77), 1.5]})),
    alone("half.csv", "smiles,logS,is_train\nCCO,1.5,1\nN,2,0\n", "half.csv: column 'is_train' may "
          "mark a split; write a column 'split' of train, valid and test, or name what to learn "
          "with --targets"),
    alone("half.csv", "smiles,logS,is_train\nCCO,1.5,1\nN,2,0\n", TWO, targets=("logS",)),
    alone("marks.csv", "smiles,logS,train_mask\nCCO,1.5,1\nN,2,0\n", "marks.csv: column "
          "'train_mask' may mark a split; write a column 'split' of train, valid and test, or name "
          "what to learn with --targets"),
    alone("w.csv", "smiles,logS,Set\nCCO,1.5,Training\nN,2,Test\n",
          Molecules(("CCO", "N"), TARGETS, parts=("train", "test"))),
    alone("a.smi", "CCO ethanol\nN ammonia water\n",
          Molecules(("CCO", "N"), {}, ("ethanol", "ammonia water"))),
    alone("b.smi", "CCO\nN\n", Molecules(("CCO", "N"))),
    alone("c.smi", "CCO\te\t1.5\nN\ta\t2\n", Molecules(("CCO", "N"), {"3": [1.5, 2]}, ("e", "a"))),
    alone("d.smi", "smiles\tlogS\nCCO\t1.5\nN\t2\n", TWO),
    alone("f.smi", "CCO 1.5\nN 2\n", Molecules(("CCO", "N"), {"2": [1.5, 2]})),
    alone("g.smi", "CCO 702\nN 222\n", Molecules(("CCO", "N"), {}, ("702", "222"))),
    alone("h.smi", "CCO,1.5\nN,2\n", Molecules(("CCO", "N"), {"2": [1.5, 2]})),
    alone("i.smi", "SMILES Name logS\nCCO a 1.5\nN b 2\n", TWO),
    alone("j.smiles", "CCO 1,2-ethane\nN\n", Molecules(("CCO", "N"), {}, ("1,2-ethane", ""))),
    alone("e.smi", "CCO\nno molecule\nN\n", Molecules(("CCO", "N"), {}, ("", ""))),
    alone("a.sdf", SDF, Molecules(("CCO",), {"logS": [1.5]}, ("ethanol",))),
    alone("b.sdf.gz", gzip.compress(SDF.encode(), mtime=0),
          Molecules(("CCO",), {"logS": [1.5]}, ("ethanol",))),
    alone("c.sdf", "", "c.sdf: there are no molecules in the file"),
]  # fmt: skip
