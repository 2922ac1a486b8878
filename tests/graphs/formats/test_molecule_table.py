"""A user's table of molecules: columns found, gaps kept, mistakes named by row and column."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from specformer.errors import GraphError
from specformer.graphs import Columns, read_molecules


@pytest.fixture(autouse=True)
def _chem() -> None:
    pytest.importorskip("rdkit", reason="the extra 'chem' is not installed")


def table(folder: Path, text: str) -> Path:
    path = folder / "own.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_columns_are_found_and_gaps_kept(tmp_path: Path) -> None:
    text = "Id,name,SMILES,logS,toxic\na,ethanol,CCO,1.5,\nb,,N,nan,1\nc,water,O,NA,0\n"
    found = read_molecules(table(tmp_path, text))
    assert found.graphs.name == "own"
    assert found.graphs.ids == ("a", "b", "c")
    assert found.graphs.task_names == ("logS", "toxic")
    np.testing.assert_array_equal(
        found.graphs.y, np.float32([[1.5, np.nan], [np.nan, 1], [np.nan, 0]])
    )
    assert found.rows == (2, 3, 4)


def test_a_compressed_file_is_the_same(tmp_path: Path) -> None:
    text = "smiles,logS\nCCO,1.5\nN,2\n"
    packed = tmp_path / "own.csv.gz"
    packed.write_bytes(gzip.compress(text.encode("utf-8-sig")))
    ours, plain = read_molecules(packed).graphs, read_molecules(table(tmp_path, text)).graphs
    assert (ours.name, ours.smiles, ours.task_names) == (plain.name, plain.smiles, plain.task_names)
    np.testing.assert_array_equal(ours.y, plain.y)


# With names: the time in a compressed file would be in that of its test.
@pytest.mark.parametrize(
    "damaged",
    [b"smiles\nC\n", gzip.compress(b"smiles\nCCO\n" * 99)[:-20]],
    ids=["not compressed", "cut short"],
)
def test_a_damaged_compressed_file_is_refused(damaged: bytes, tmp_path: Path) -> None:
    (tmp_path / "own.csv.gz").write_bytes(damaged)
    with pytest.raises(GraphError, match=r"own\.csv\.gz: cannot be read as CSV"):
        read_molecules(tmp_path / "own.csv.gz")


def test_columns_may_be_named(tmp_path: Path) -> None:
    path = table(tmp_path, "mol,a,b,7\nCCO,1,x,2\nN,2,y,3\n")
    found = read_molecules(path, Columns(smiles="MOL", targets=("a",)))
    assert found.graphs.task_names == ("a",)
    assert read_molecules(path).graphs.task_names == ("a", "7")


def test_true_and_false_are_classes(tmp_path: Path) -> None:
    text = "smiles,toxic,name,logS\nC,True,true north,1\nN,FALSE,b,2\nO,,c,3\n"
    found = read_molecules(table(tmp_path, text)).graphs
    assert found.task_names == ("toxic", "logS")
    np.testing.assert_array_equal(found.y, [[1, 1], [0, 2], [np.nan, 3]])


def test_a_column_of_words_that_is_asked_for_is_classes(tmp_path: Path) -> None:
    rows = ["CCO,yes", "C,no", "N,", "C1C,yes", "O,no", "CC,NA", "CN,yes"]
    path = table(tmp_path, "\n".join(["smiles,Active", *rows]))
    assert read_molecules(path, Columns(targets=())).graphs.y is None
    found = read_molecules(path, Columns(targets=("Active",))).graphs
    unsaid = read_molecules(path).graphs  # the only words that come again
    assert (unsaid.class_names, unsaid.fingerprint) == (found.class_names, found.fingerprint)
    assert (found.task_names, found.class_names) == (("Active",), ("no", "yes"))
    np.testing.assert_array_equal(found.y[:, 0], np.float32([1, 0, np.nan, 0, np.nan, 1]))
    lost = table(
        tmp_path, "smiles,a\nC,x\nC1C,m\nN,z\nO,x\nC1C,m\nCC,\nCN,z\n"
    )  # m is no molecule's
    found = read_molecules(lost, Columns(targets=("a",))).graphs
    assert found.class_names == ("x", "z")
    np.testing.assert_array_equal(found.y[:, 0], np.float32([0, 1, 0, np.nan, 1]))
    different = table(tmp_path, "smiles,name\nC,a\nN,b\nO,a\nCC,c\nCN,d\n")
    with pytest.raises(
        GraphError, match="column 'name': 4 different words in 5 rows cannot be classes"
    ):
        read_molecules(different, Columns(targets=("name",)))
    unsaid = table(tmp_path, "smiles,risk\nC,low\nN,low\nO,None\nCC,high\nCN,high\n")
    with pytest.raises(GraphError, match="column 'risk', row 4: 'None' may be a class or a miss"):
        read_molecules(unsaid, Columns(targets=("risk",)))
    cased = table(tmp_path, "smiles,hit\nC,Yes\nN,no\nO,yes\nCC,no\nCN,Yes\nCO,yes\n")
    with pytest.raises(GraphError, match="column 'hit': the classes 'Yes' and 'yes' differ only"):
        read_molecules(cased, Columns(targets=("hit",)))
    mixed = table(tmp_path, "smiles,a,b\nC,x,1\nN,x,2\nO,y,3\n")
    with pytest.raises(
        GraphError, match=r"column 'a': its words .* one target at a time: --targets a"
    ):
        read_molecules(
            mixed,
            Columns(
                targets=(
                    "a",
                    "b",
                )
            ),
        )


def test_molecules_without_targets(tmp_path: Path) -> None:
    found = read_molecules(table(tmp_path, "smiles\nCCO\nN\n"))
    assert found.graphs.y is None
    assert found.graphs.task_names is None
    assert len(found.graphs) == 2


def test_what_is_no_molecule_is_reported_by_row(tmp_path: Path) -> None:
    text = 'smiles,y\nCCO,1\nC1CC,2\n\n"N",3\n,4\n'
    found = read_molecules(table(tmp_path, text))
    assert found.rows == (2, 5)
    assert found.graphs.y.ravel().tolist() == [1.0, 3.0]
    assert [(bad.row, bad.smiles) for bad in found.problems] == [(3, "C1CC"), (6, "")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("drug,y\nC,1\n", "there is no column 'smiles', only 'drug', 'y'; say which one holds"),
        ("smiles,SMILES,Smiles\nC,C,C\n", None),
        ("Smiles,SMILES\nC,C\n", "'Smiles', 'SMILES' may hold the SMILES; say which"),
        ("smiles,y\nC,1\nN,high\n", "column 'y', row 3: 'high' is not a number; leave it empty"),
        ("smiles,y\nC,inf\n", "column 'y', row 2: 'inf' is not a finite number"),
        ("smiles,y\nC,1e999\n", "column 'y', row 2: '1e999' is not a finite number"),
        ("smiles,y\nC1,1\n", "column 'smiles': none of the 1 molecules can be read; row 2"),
        ("smiles,y\n", "there are no rows below the header"),
        (
            "From,To\n1,2\n",
            "looks like a list of edges, by its columns 'From' and 'To'; put it into a",
        ),
        ("smiles,split\nC,1\n", "column 'split', row 2: '1' is not a part of a split; write train"),
        ("smiles,y\nC,1,2\n", "row 2 has 3 cells where the header has 2"),
        ("smiles,y\nC,1\nN\n", "row 3 has 1 cell where the header has 2"),
        ('smiles,y\nC,1\n"N,2\n', "row 3 cannot be read as CSV"),
        ("", "the file is empty"),
        ("\n \n", "the file is empty"),
    ],
)
def test_mistakes_are_named(text: str, message: str | None, tmp_path: Path) -> None:
    path = table(tmp_path, text)
    if message is None:
        assert len(read_molecules(path).graphs) == 1
        return
    with pytest.raises(GraphError, match=f"own.csv: .*{message}"):
        read_molecules(path)


def test_blank_lines_are_passed_over_anywhere(tmp_path: Path) -> None:
    found = read_molecules(table(tmp_path, "\n  \nsmiles,y\n\nC,1\n   \nN,2\n\t\n"))
    assert found.rows == (5, 7)
    assert found.graphs.task_names == ("y",)
    assert not found.problems


def test_a_column_without_a_name_is_no_target(tmp_path: Path) -> None:
    pandas_index = ",smiles,y\n0,C,1.5\n1,N,2.5\n"
    assert read_molecules(table(tmp_path, pandas_index)).graphs.task_names == ("y",)
    trailing = "smiles,y,,\nC,1.5,,\nN,2.5,,7\n"
    assert read_molecules(table(tmp_path, trailing)).graphs.task_names == ("y",)


@pytest.mark.parametrize(
    "text",
    ["smiles;logS\nC;1,5\nN;2\n", "smiles\tlogS\nC\t1,5\nN\t2\n", "smiles|logS\nC|1.5\nN|2\n"],
)
def test_what_parts_columns_is_recognised(text: str, tmp_path: Path) -> None:
    found = read_molecules(table(tmp_path, text)).graphs
    assert (found.task_names, found.y.tolist()) == (("logS",), [[1.5], [2.0]])


def test_a_split_column_is_the_split_and_no_target(tmp_path: Path) -> None:
    rows = ["C,1,Train", "N,2,VAL", "C1C,3,test", "O,4,test", "CC,5,", "CN,6,training"]
    path = table(tmp_path, "\n".join(["smiles,logS,Split", *rows]))
    found = read_molecules(path).graphs  # the third row is no molecule
    assert found.task_names == ("logS",)
    parts = [found.train_idx, found.valid_idx, found.test_idx]
    assert [part.tolist() for part in parts] == [[0, 4], [1], [2]]
    asked = read_molecules(
        table(tmp_path, "smiles,split\nC,1\nN,2\n"), Columns(targets=("split",))
    ).graphs
    assert (asked.task_names, asked.train_idx) == (("split",), None)


def test_columns_asked_for_must_be_there(tmp_path: Path) -> None:
    path = table(tmp_path, "smiles,y\nC,1\n")
    with pytest.raises(GraphError, match="there is no column 'z', only 'smiles', 'y'"):
        read_molecules(path, Columns(targets=("z",)))
    with pytest.raises(GraphError, match=r"there is no column 'z', only 'smiles', 'y'$"):
        read_molecules(path, Columns(smiles="z"))
    with pytest.raises(GraphError, match="there is no such file"):
        read_molecules(tmp_path / "other.csv")


def test_esol(shared_data: Path) -> None:
    found = read_molecules(shared_data / "esol.csv")
    assert (len(found.graphs), len(found.problems)) == (1128, 0)
    assert found.graphs.task_names == ("logSolubility",)
    assert found.graphs.y[:2].ravel().tolist() == pytest.approx([-0.77, -3.3])
    assert int(found.graphs.num_nodes.min()) == 1  # methane


def test_dates_are_not_classes_and_measured_columns_are_not_ids(tmp_path: Path) -> None:
    rows = [f"{'C' * n},2024-0{1 + n % 3}-01,{n / 7},{-n // 2}" for n in range(1, 13)]
    text = "smiles,date,NO,Index\n" + "\n".join(rows)
    found = read_molecules(table(tmp_path, text)).graphs
    assert found.task_names == ("NO", "Index")
    assert found.ids is None
    counted = "no,smiles,date\n" + "\n".join(f"{n},{'C' * n},2024-05-01" for n in range(1, 5))
    found = read_molecules(table(tmp_path, counted)).graphs
    assert (found.ids, found.y) == (("1", "2", "3", "4"), None)


def test_an_impossible_molecule_of_an_sdf_keeps_its_name(tmp_path: Path) -> None:
    from rdkit import Chem

    blocks = []
    for name, smiles in (("fine", "CCO"), ("bad", "CC(C)(C)(C)C")):
        molecule = Chem.MolFromSmiles(smiles, sanitize=False)
        molecule.SetProp("_Name", name)
        blocks.append(Chem.MolToMolBlock(molecule, kekulize=False) + "$$$$\n")
    (tmp_path / "two.sdf").write_text("".join(blocks))
    found = read_molecules(tmp_path / "two.sdf")
    assert found.graphs.ids == ("fine",)
    (problem,) = found.problems
    assert problem.id == "bad"
    assert "is not a possible molecule: Explicit valence" in str(problem)
