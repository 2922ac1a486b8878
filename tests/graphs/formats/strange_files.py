"""Files in the styles real people have, with what each of them means."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specformer.graphs import Columns

#: A file's text, its bytes, or what writes it.
Content = str | bytes | Callable[[Path], None]
CHAIN = {("ann", "bob"): 1.0, ("bob", "cy"): 1.0}
PEOPLE = ("ann", "bob", "cy")
EDGES = "source,target\nann,bob\nbob,cy\n"
NODES = "id,age,label\nann,30,dog\nbob,41,cat\ncy,29,\n"


@dataclass(frozen=True)
class Meant:
    """A graph as people think of it: by names. None of ``features`` is a missing value."""

    ids: Sequence[str] = PEOPLE
    edges: Mapping[tuple[str, str], float] = field(default_factory=lambda: CHAIN)
    features: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    labels: Sequence[str | None] | None = None
    parts: Sequence[str | None] | None = None


@dataclass(frozen=True)
class Molecules:
    """Molecules as people think of them; those that cannot be read are left out."""

    smiles: Sequence[str]
    targets: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    ids: Sequence[str] | None = None
    parts: Sequence[str | None] | None = None


@dataclass(frozen=True)
class Strange:
    """Files by name, what is said of their columns, and what they mean, or why they are refused."""

    name: str
    files: Mapping[str, Content]
    meant: Meant | Molecules | str
    said: Columns = field(default_factory=Columns)
    #: The file to read; None for the folder.
    read: str | None = None

    def write(self, folder: Path) -> Path:
        for name, content in self.files.items():
            if callable(content):
                content(folder / name)
            else:
                data = content.encode() if isinstance(content, str) else content
                (folder / name).write_bytes(data)
        return folder if self.read is None else folder / self.read


def edges(name: str, content: Content, meant: Meant | str, **said: Any) -> Strange:
    """Edges in a folder."""
    return Strange(f"edges: {name}", {"edges.csv": content}, meant, Columns(**said))


def alone(file: str, content: Content, meant: Meant | Molecules | str, **said: Any) -> Strange:
    """One file."""
    shown = content[:24] if isinstance(content, str) else ""
    return Strange(f"{file}: {shown!r} {said or ''}", {file: content}, meant, Columns(**said), file)


TO_SAVE = (
    "if this is an adjacency matrix, save it with scipy.sparse.save_npz('graph.npz', "
    "scipy.sparse.csr_array(matrix))"
)
NUMBERED = Meant(("1", "2", "3"), {("1", "2"): 1.0, ("2", "3"): 1.0})
AGES = {"age": [30, 41, 29]}
PETS = ("dog", "cat", None)
LABELLED = Meant(features=AGES, labels=PETS)

EDGE_FILES = [
    edges("plain", EDGES, Meant()),
    edges("CRLF", EDGES.replace("\n", "\r\n"), Meant()),
    edges("old Mac line ends", EDGES.replace("\n", "\r"), Meant()),
    edges("a mark at the start", b"\xef\xbb\xbf" + EDGES.encode(), Meant()),
    edges("UTF-16", EDGES.replace(",", "\t").encode("utf-16"), Meant()),
    edges("no line end at the end", EDGES.rstrip(), Meant()),
    edges("blank lines", "\n\nsource,target\n\nann,bob\n   \nbob,cy\n\n\n", Meant()),
    edges("quotes", '"source","target"\n"ann","bob"\n"bob","cy"\n', Meant()),
    edges("semicolons", EDGES.replace(",", ";"), Meant()),
    edges("tabs", EDGES.replace(",", "\t"), Meant()),
    edges("bars", EDGES.replace(",", "|"), Meant()),
    edges("spaces", EDGES.replace(",", "  "), Meant()),
    edges("a line for Excel", "sep=;\nsource;target\nann;bob\nbob;cy\n", Meant()),
    edges("comments on top", "# my graph, of 2024\n# by me\n" + EDGES, Meant()),
    edges("the header as a comment", "# source,target\nann,bob\nbob,cy\n", Meant()),
    edges("SNAP", "# Directed graph\n# FromNodeId\tToNodeId\n1\t2\n2\t3\n", NUMBERED),
    edges("separators at the ends of rows", "source,target,\nann,bob,\nbob,cy,\n", Meant()),
    edges("more of them than in the header", "source,target\nann,bob,\nbob,cy,,\n", Meant()),
    edges("spaces in the header", " Source , Target \nann,bob\nbob,cy\n", Meant()),
    edges("from, to", "From,To\nann,bob\nbob,cy\n", Meant()),
    edges("other names", "Source ID,Target ID\nann,bob\nbob,cy\n", Meant()),
    edges("node1, node2", "node_1,node_2\nann,bob\nbob,cy\n", Meant()),
    edges(
        "Gephi",
        "Source,Target,Type,Id,Label,timeset,Weight\nann,bob,Undirected,0,,,1.0\n"
        "bob,cy,Undirected,1,,,2.5\n",
        Meant(edges={("ann", "bob"): 1.0, ("bob", "cy"): 2.5}),
    ),
    edges("Neo4j", ":START_ID,:END_ID,:TYPE\nann,bob,KNOWS\nbob,cy,KNOWS\n", Meant()),
    edges(
        "Neo4j with spaces of ids",
        ":START_ID(Person),:END_ID(Person)\nann,bob\nbob,cy\n",
        Meant(),
    ),
    edges(
        "Cytoscape",
        "SUID,interaction,name,shared name\n88,pp,ann (pp) bob,ann (pp) bob\n",
        "edges.csv: needs the columns 'source' and 'target', but has 'SUID', 'interaction', "
        "'name', 'shared name'; name them with --source and --target",
    ),
    edges("numbers without a header", "1,2\n2,3\n", NUMBERED),
    edges(
        "numbers and weights without a header",
        "1;2;0,5\n2;3;2\n",
        "edges.csv: column '3', row 1: '0,5' is not a weight; name the ends of an edge, "
        "such as --source 1 --target 2 --weight 3",
    ),
    edges(
        "words without a header",
        "ann,bob\nbob,cy\n",
        "edges.csv: needs the columns 'source' and 'target', but has 'ann', 'bob'; name them "
        "with --source and --target (1 and 2 if the first row is an edge)",
    ),
    edges("words without a header, as said", "ann,bob\nbob,cy\n", Meant(), source="1", target="2"),
    edges("columns as said", "a,b\nann,bob\nbob,cy\n", Meant(), source="a", target="b"),
    edges(
        "two pairs of ends",
        "source,target,from,to\nann,bob,x,y\n",
        "edges.csv: the ends of an edge may be 'source' and 'target' or 'from' and 'to'; say which "
        "with --source and --target",
    ),
    edges(
        "one end said",
        EDGES,
        "edges.csv: --source and --target go together; name both columns",
        source="source",
    ),
    edges("loops and twice the same", EDGES + "bob,ann\nann,bob\ncy,cy\n", Meant(
        edges={**CHAIN, ("cy", "cy"): 1.0})),
    edges("weights twice", "source,target,weight\nann,bob,1\nann,bob,2\nbob,ann,2\nbob,cy,1\n",
          Meant(edges={("ann", "bob"): 3.0, ("bob", "cy"): 1.0})),
    edges("decimal commas", "source;target;weight\nann;bob;0,5\nbob;cy;2\n",
          Meant(edges={("ann", "bob"): 0.5, ("bob", "cy"): 2.0})),
    edges("weights with a unit", "source,target,weight\nann,bob,1.5 km\nbob,cy,2km\n",
          Meant(edges={("ann", "bob"): 1.5, ("bob", "cy"): 2.0})),
    edges("weights with thousands", 'source,target,weight\nann,bob,"1,500"\nbob,cy,2\n',
          "edges.csv: column 'weight', row 2: '1,500' has a comma; write thousands without it, "
          "decimals with a point, and several values into a column each"),
    edges("weights by another name", "source,target,score\nann,bob,3\nbob,cy,2\n",
          Meant(edges={("ann", "bob"): 3.0, ("bob", "cy"): 2.0}), weight="score"),
    edges("weights that are none", "source,target,weight\nann,bob,3\nbob,cy,2\n", Meant(),
          weight="none"),
    edges("numbers that are no weights", "source,target,year\nann,bob,1999\nbob,cy,2001\n",
          Meant()),
    edges("leading zeros", "source,target\n007,08\n08,9\n",
          Meant(("007", "08", "9"), {("007", "08"): 1.0, ("08", "9"): 1.0})),
    edges("Latin-1", "source,target\nZoë,Bär\n".encode("latin-1"),
          Meant(("Bär", "Zoë"), {("Bär", "Zoë"): 1.0})),
    edges("a short row", "source,target\nann\n",
          "edges.csv: row 2 has 1 cell where the header has 2"),
    edges("an empty end", "source,target\nann,\n",
          "edges.csv: column 'target', row 2: the id is empty"),
    edges("weights of words", "source,target,weight\nann,bob,strong\n",
          "edges.csv: column 'weight', row 2: 'strong' is not a number; --weight none leaves all "
          "weights out"),
    edges("a missing weight", "source,target,weight\nann,bob,\n",
          "edges.csv: column 'weight', row 2: '' is not a number; --weight none leaves all weights "
          "out"),
    edges("a matrix", ",ann,bob,cy,di\nann,0,1,0,1\nbob,1,0,1,0\ncy,0,1,0,1\ndi,1,0,1,0\n",
          f"edges.csv: looks like an adjacency matrix; {TO_SAVE.partition(', ')[2]}"),
    edges("a negative weight", "source,target,weight\nann,bob,-1\n",
          "edges.csv: column 'weight', row 2: the weight -1.0 is negative; --weight none "
          "leaves all weights out"),
    edges("a spreadsheet", b"PK\x03\x04\x14\x00", "edges.csv: is not text; export it as CSV"),
    Strange("compressed", {"edges.csv.gz": gzip.compress(EDGES.encode(), mtime=0)}, Meant()),
    Strange("links.tsv", {"links.tsv": EDGES.replace(",", "\t")}, Meant()),
    Strange(
        "Gephi's names of files",
        {"karate [Edges].csv": EDGES, "karate [Nodes].csv": NODES},
        LABELLED,
    ),
    Strange(
        "two lists of edges",
        {"old_edges.csv": EDGES, "new_edges.csv": EDGES},
        ".: holds both new_edges.csv and old_edges.csv; remove one of them",
    ),
    Strange("no edges", {"knowledge.csv": EDGES},
            ".: has no table of edges, such as edges.csv; it holds 'knowledge.csv'"),
    Strange("an empty folder", {},
            ".: has no table of edges, such as edges.csv; it is empty"),
    Strange("texts", {"edges.txt": "ann bob\nbob cy\n", "nodes.txt": NODES}, LABELLED),
    edges("who follows whom", "follower,followee\nann,bob\nbob,cy\n", Meant()),
    edges("who cites whom", "Citing\tCited\nann\tbob\nbob\tcy\n", Meant()),
    edges("proteins", "protein1 protein2 combined_score\nann bob 900\nbob cy 800\n", Meant()),
    edges("no numbers of weights", "source;target;weight\nann;bob;1,5e+0\nbob;cy;2\n",
          Meant(edges={("ann", "bob"): 1.5, ("bob", "cy"): 2.0})),
    edges("a short spreadsheet", b"PK\x03\x04", "edges.csv: is not text; export it as CSV"),
]  # fmt: skip

SAY = "name the ends of an edge, such as --source 1 --target 2 --weight 3"
WEIGHTED = Meant(("1", "2", "3"), {("1", "2"): 0.5, ("2", "3"): 2.0})

TEXT_FILES = [
    alone("a.csv", "1,2\n2,3\n", NUMBERED),
    alone("b.csv", "1,2,0.5\n2,3,2\n", WEIGHTED),
    alone("c.csv", "ann,bob\nbob,cy\n", Meant(), source="1", target="2"),
    alone("matrix.csv", "0,1,0\n1,0,1\n0,1,0\n", "matrix.csv: column '0' appears more than once; "
          f"the first row must name the columns; {TO_SAVE}"),
    alone("m.txt", "0 1 0 1\n1 0 1 0\n0 1 0 1\n1 0 1 0\n",
          "m.txt: looks like an adjacency matrix; " + TO_SAVE.partition(", ")[2]),
    alone("a.edges", "1 2\n2 3\n", NUMBERED),
    alone("a.txt", "1\t2\n2\t3\n", NUMBERED),
    alone("b.txt", "1, 2\n2, 3\n", NUMBERED),
    alone("a.edgelist", "1 2 {}\n2 3 {}\n", NUMBERED),
    alone("b.edgelist", "1 2 {'weight': 0.5}\n2 3 {'weight': 2}\n", WEIGHTED),
    alone("b.edges", "% sym weighted\n% 2 3 3\n1 2 0.5\n2 3 2\n", WEIGHTED),
    alone("c.txt", "# Nodes: 3\n\n  1   2\n2 3  \n", NUMBERED),
    alone("d.txt", "ann bob\nbob cy\n", Meant()),
    alone("e.txt", "source target\nann bob\nbob cy\n", Meant()),
    alone("f.txt", '"ann" "bob"\n"bob" "cy"\n', Meant()),
    alone("g.txt.gz", gzip.compress(b"1 2\n2 3\n", mtime=0), NUMBERED),
    alone("h.txt", "here there\n1 2\n2 3\n",
          "h.txt: needs the columns 'source' and 'target', but has 'here', 'there'; name them "
          "with --source and --target (1 and 2 if the first row is an edge)"),
    alone("i.txt", "smiles,logS\nCCO,1.5\nN,2\n",
          "i.txt: holds molecules, judging by its first row; rename it to .csv or .smi"),
    alone("h.txt", "here there\n1 2\n2 3\n", NUMBERED, source="here", target="there"),
    alone("counts.txt", "3 2\n1 2\n2 3\n",
          "counts.txt: row 1, '3 2', looks like counts, as 2 edges follow; remove it, or put the "
          "header 'source target' above it if it is an edge"),
    alone("sif.txt", "ann pp bob\nbob pd cy\n", f"sif.txt: column '3', row 1: 'bob' is not a "
          f"weight; {SAY}"),
    alone("sif.txt", "ann pp bob\nbob pp cy\n", Meant(), source="1", target="3"),
    alone("arrows.txt", "1 -> 2\n2 -> 3\n",
          "arrows.txt: column 2 does not look like nodes; name the ends of an edge, such "
          "as --source 1 --target 3"),
    alone("arrows.txt", "1 -> 2\n2 -> 3\n", NUMBERED, source="1", target="3"),
    alone("dimacs.txt", "e 1 2\ne 2 3\n",
          "dimacs.txt: column 1 does not look like nodes; name the ends of an edge, such "
          "as --source 2 --target 3"),
    alone("sif.txt", "1 pp 2\n2 pd 3\n", "sif.txt: column 2 does not look like nodes; name "
          "the ends of an edge, such as --source 1 --target 3"),
    alone("times.txt", "1 2 1082040961\n2 3 1082155839\n",
          f"times.txt: column 3 holds times rather than weights; {SAY}"),
    alone("times.txt", "1 2 1082040961\n2 3 1082155839\n", NUMBERED, source="1", target="2",
          weight="none"),
    alone("out.txt", "1 2 1 99\n2 3 1 99\n", f"out.txt: has 4 columns without names; {SAY}"),
    alone("adjacent.txt", "1 2 3\n2 3\n", "adjacent.txt: row 2 has 2 cells where row 1 has 3"),
    alone("empty.txt", "# nothing\n", "empty.txt: there are no edges in the file"),
    alone("one.txt", "1\n2\n", "one.txt: row 1 has 1 cell; an edge has two ends; molecules "
          "are read from files called .smi or .csv"),
    alone("signed.txt", "1 2 -1\n", "signed.txt: column '3', row 1: the weight -1.0 is negative; "
          "--weight none leaves all weights out"),
    alone("k.csv", "0,3\n3,1\n", Meant(("0", "1", "3"), {("0", "3"): 1.0, ("1", "3"): 1.0})),
    alone("k.csv", "0,1\n5,7\n", "k.csv: the first row, '0 1', may be an edge or the columns' "
          "names; put the header source,target above it, or in its place"),
    alone("k.csv", "0,1\n5,7\n", Meant(("5", "7"), {("5", "7"): 1.0}), source="0", target="1"),
    alone("k.csv", "0,1\n5,7\n", Meant(("0", "1", "5", "7"), {("0", "1"): 1.0, ("5", "7"): 1.0}),
          source="1", target="2"),
    alone("k.graph", "1 2\n", "k.graph: cannot read a graph from a '.graph' file; pass a folder "
          "with edges.csv, a table of edges, or one of .graphml, .gml, .gexf, .json, .edges, "
          ".edgelist, .el, .txt, .npz, .pt, .mtx"),
]  # fmt: skip
