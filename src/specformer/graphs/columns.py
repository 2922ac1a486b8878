"""The role of each column of a table: as the user says, else by its name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

#: Names of the two ends of an edge; the second list counts only if no name of the first occurs.
ENDS = (
    (("source", "target"), ("src", "dst"), ("from", "to"), ("u", "v"), ("startid", "endid")),
    (
        ("src", "tgt"), ("src", "trg"), ("sourceid", "targetid"), ("fromid", "toid"),
        ("fromnodeid", "tonodeid"), ("node1", "node2"), ("id1", "id2"), ("start", "end"),
        ("sourcenode", "targetnode"), ("nodea", "nodeb"), ("sender", "receiver"), ("head", "tail"),
        ("follower", "followee"), ("citing", "cited"), ("parent", "child"),
        ("user1", "user2"), ("usera", "userb"), ("protein1", "protein2"), ("gene1", "gene2"),
    ),
)  # fmt: skip
#: Names of the nodes' ids, the likeliest first.
IDS = ("id", "nodeid", "node")
#: Names of labels; the second list counts only if no column is called label.
LABEL = "label"
OTHER_LABELS = ("labels", "class", "classes", "y", "target", "nodelabel", "classlabel")
WEIGHTS = ("weight", "weights", "edgeweight")
SPLIT = "split"
#: Names of columns of truth values that mark a part of a split, by the field of a graph. Those of
#: other names than the first count only if both training and test are marked.
MARKS = {
    "train_mask": ("trainmask", "istrain", "intrain", "trainset", "train"),
    "val_mask": (
        "valmask", "validmask", "validationmask", "isval", "isvalid", "isvalidation", "valset",
        "validset", "val", "valid", "validation",
    ),
    "test_mask": ("testmask", "istest", "intest", "testset", "test"),
}  # fmt: skip
#: Numbers of the folds of a cross-validation: neither features nor targets.
FOLDS = ("fold", "folds", "foldid", "kfold", "cvfold")
#: Columns with these names hold names of nodes, not features, if each cell differs.
NAMES = ("name", "fullname", "username", "nodename", "title", "email", "url")
#: Columns with these names number rows, or have been measured.
COUNTERS = ("index", "idx", "row", "no", "nr")
#: Columns with these names number molecules; they are not targets.
MOLECULE_IDS = (
    "id", "cid", "molid", "molregno", "moleculeid", "compoundid", "chemblid", "drugid", *COUNTERS,
)  # fmt: skip
#: Names of an index column that pandas wrote without a name, in CSV or Parquet.
UNNAMED = ("", "unnamed0", "indexlevel0")
_ID = re.compile(r"(^|[^a-zA-Z])[iI][dD]$|[a-z]I[dD]$")
#: How many names a message lists.
_LISTED = 12


@dataclass(frozen=True)
class Columns:
    """The roles of a file's columns as the user says; None means to recognise one by its name.

    In lists of edges without a header, columns are called 1, 2, ….

    Attributes:
        id: the ids of nodes or molecules.
        label: the classes of the nodes.
        source: one end of each edge.
        target: the other end.
        weight: the edges' weights; ``"none"`` to ignore a column of weights.
        features: the nodes' features.
        split: the part of the split that a node or molecule is in.
        smiles: the molecules.
        targets: what to learn about the molecules.

    Example:
        >>> Columns(label="club").said
        {'label': 'club'}
    """

    id: str | None = None
    label: str | None = None
    source: str | None = None
    target: str | None = None
    weight: str | None = None
    features: tuple[str, ...] | None = None
    split: str | None = None
    smiles: str | None = None
    targets: tuple[str, ...] | None = None

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Columns:
        """From plain values, as :attr:`said` gives them."""
        fields: dict[str, Any] = {
            key: tuple(each) if key in ("features", "targets") else each
            for key, each in said.items()
        }
        return cls(**fields)

    @property
    def said(self) -> dict[str, Any]:
        """The roles that were given, as plain values."""
        told = {field.name: getattr(self, field.name) for field in fields(self)}
        plain = {key: list(each) if isinstance(each, tuple) else each for key, each in told.items()}
        return {key: each for key, each in plain.items() if each is not None}

    @property
    def options(self) -> list[str]:
        """The options of the command line for the roles that were given."""
        named = {"split": "split-column", "smiles": "smiles-column"}
        return [named.get(field, field) for field in self.said]

    @property
    def words(self) -> list[str]:
        """The same as words of the command line."""
        texts = [each if isinstance(each, str) else ",".join(each) for each in self.said.values()]
        pairs = zip(self.options, texts, strict=True)
        return [word for option, text in pairs for word in (f"--{option}", text)]

    def over(self, other: Columns) -> Columns:
        """These roles, and the other's where these are None."""
        return Columns.of({**other.said, **self.said})


def plain_name(name: str) -> str:
    """A column's name in lower-case letters and digits only; for Neo4j, the part after the colon.

    Example:
        >>> plain_name("Node ID"), plain_name("personId:ID(Person)"), plain_name(":START_ID")
        ('nodeid', 'id', 'startid')
    """
    role = name.rpartition(":")[2].partition("(")[0]
    text = role if role in ("ID", "START_ID", "END_ID") else name
    return "".join(letter for letter in text.casefold() if letter.isalnum())


def is_id(name: str) -> bool:
    """Whether a column's name is that of an id, which only tells rows apart.

    Example:
        >>> is_id("customer_id"), is_id("userID"), is_id("idx"), is_id("paid")
        (True, True, True, False)
    """
    return plain_name(name) in MOLECULE_IDS or _ID.search(name) is not None


def quoted(names: Iterable[str]) -> str:
    """Names in quotes, separated by commas; of many names only the first.

    Example:
        >>> quoted(["a", "b"]), quoted(str(n) for n in range(99))[-12:]
        ("'a', 'b'", "'11', … (99)")
    """
    listed = list(names)
    more = f", … ({len(listed)})" if len(listed) > _LISTED else ""
    return ", ".join(map(repr, listed[:_LISTED])) + more
