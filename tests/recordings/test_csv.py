"""Tables: found from their first line, cells with anything in them, broken rows."""

from __future__ import annotations

import csv
import gzip
import io
import time

import pytest

from tests.recordings.files import jsonl, texts
from workbench.clock import ns_from_text
from workbench.errors import RecordingError
from workbench.recordings import load_recordings, write_recording

PLAIN = "conversation_id,role,content\nA,user,hi\nA,assistant,hello\nB,user,bye\n"


def written(path, text: str, encoding="utf-8"):
    path.write_bytes(text.encode(encoding, "surrogateescape"))
    return path


def contents(conversation) -> list[str]:
    return [message.content for message in conversation.messages]


def roles(conversation) -> str:
    return "".join(message.role[0] for message in conversation.messages)


def summary(recordings) -> list[tuple[str, str, list[str]]]:
    return [(c.id, roles(c), contents(c)) for c in recordings]


@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_a_table_with_usual_names_is_found_from_its_first_line(delimiter, line_end, tmp_path):
    """WB-REC-01, WB-REC-02 `csv`."""
    text = PLAIN.replace(",", delimiter).replace("\n", line_end)
    recordings = load_recordings(written(tmp_path / "noname", text))
    assert summary(recordings) == [("A", "ua", ["hi", "hello"]), ("B", "u", ["bye"])]
    assert recordings.formats == {"csv": 2}
    assert recordings[0].line == 2
    assert any("text=content, speaker=role, id=conversation_id" in loss for loss in recordings.losses)


@pytest.mark.parametrize(
    ("text", "mapping", "expected"),
    [
        ("Q,A,label\n你好,您好,0\n几点？,九点,1\n", "user=Q,assistant=A", [("uaua", ["你好", "您好", "几点？", "九点"])]),
        ("who,says\nX,a\nY,b\nX,c\n", "text=says,speaker=who,user=X", [("uau", ["a", "b", "c"])]),
        ("who,says,d\nX,a,1\nX,b,2\nY,c,1\n", "text=says,speaker=who,id=d", [("ua", ["a", "c"]), ("u", ["b"])]),
        ("角色,内容\n客户,在吗\n客服,在的\n", "text=内容,speaker=角色", [("ua", ["在吗", "在的"])]),
        ("a.b,c\nx,y\n", "user=a.b,assistant=c", [("ua", ["x", "y"])]),
    ],
    ids=["question-answer", "named-user", "rows-apart", "chinese", "dots"],
)  # fmt: skip
def test_columns_are_named_with_a_mapping(text, mapping, expected, tmp_path):
    """WB-REC-02 `csv`: `--map`; rows of a conversation needn't stand together."""
    recordings = load_recordings(written(tmp_path / "a.csv", text), map=mapping)
    assert [(roles(c), contents(c)) for c in recordings] == expected
    assert set(recordings.formats) == {"csv"}


def test_cells_in_quotes_hold_anything_and_lines_are_counted(tmp_path):
    cells = ['a "quoted" word', "two\nlines, and a comma", "", " spaces ", "半角＂全角"]
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["role", "content"])
    for place, cell in enumerate(cells):
        writer.writerow(["assistant" if place % 2 else "user", cell])
    recordings = load_recordings(written(tmp_path / "a.csv", "\ufeff" + out.getvalue()))
    assert contents(recordings[0]) == cells
    assert texts(recordings) == ["byte-order mark ignored"]


@pytest.mark.parametrize("start", ["=1+1", "+x", "-x", "@x", "\tx", "＝x", "＋x", "－x", "＠x"])
def test_the_apostrophe_before_a_formula_is_taken_off(start, tmp_path):
    """SEC-06: and only that one."""
    text = f"role,content\nuser,\"'{start}\"\nassistant,'tis\nuser,-5\n"
    (conversation,) = load_recordings(written(tmp_path / "a.csv", text))
    assert contents(conversation) == [start, "'tis", "-5"]


def test_roles_of_messages_are_known_by_their_names(tmp_path):
    """WB-REC-04 rule 7: beside an assistant, `system` is the instruction."""
    text = "role,content\nsystem,Be brief.\nuser,a\nassistant,b\ntool,c\nassistant,d\n"
    recordings = load_recordings(written(tmp_path / "a.csv", text))
    assert (recordings[0].instruction, roles(recordings[0])) == ("Be brief.", "uata")
    assert texts(recordings) == ["tool result without call id answers no earlier call; kept"]


def test_times_are_texts_or_numbers(tmp_path):
    """WB-REC-03."""
    text = "role,content,timestamp\nuser,a,1772413200.5\nassistant,b,2026-03-02T09:00:05+08:00\n"
    (conversation,) = load_recordings(written(tmp_path / "a.csv", text))
    assert [e.time_ns for e in conversation.events] == [1772413200_500_000_000, ns_from_text("2026-03-02T01:00:05Z")]
    no_zone = written(tmp_path / "b.csv", "role,content,time\nuser,a,2026-03-02 09:00\n")
    with pytest.raises(RecordingError, match=r"b\.csv:2: .* has no zone"):
        load_recordings(no_zone)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("A,user", "row has 2 cells, the first line names 3"),
        ('A,user,"x" y', "text behind the closing quote at column 10; double quotes in cells"),
        (" ,user,x", "session id is empty"),
        ("A,user,\udcff", "byte 0xff at column 8 is not UTF-8"),
    ],
    ids=["cells", "quote", "B27", "B05"],
)
def test_a_broken_row_costs_the_conversation_it_stands_in(row, expected, tmp_path):
    """WB-REC-05, REL-11."""
    text = f"conversation_id,role,content\nA,user,hi\n{row}\nB,user,x\nB,assistant,y\n"
    recordings = load_recordings(written(tmp_path / "a.csv", text))
    assert [(p.line, p.text) for p in recordings.problems] == [(3, expected)]
    assert summary(recordings) == [("B", "ua", ["x", "y"])]


def test_a_quote_that_is_never_closed_costs_one_row_not_the_file(tmp_path):
    """REL-11, B30: the lines behind it are read once more."""
    text = 'conversation_id,role,content\nA,user,"hi\nB,user,x\nB,assistant,y\n'
    recordings = load_recordings(written(tmp_path / "a.csv", text))
    assert [(p.line, p.text) for p in recordings.problems] == [
        (2, "a quote is opened and never closed; the file may be cut")
    ]
    assert summary(recordings) == [("B", "ua", ["x", "y"])]


def test_quotes_that_are_never_closed_take_linear_time(tmp_path):
    """REL-12: 100,000 broken rows, each of which opens a quote."""
    path = written(tmp_path / "a.csv", "role,content\nuser,x\n" + 'user,"x\n' * 100_001)
    started = time.perf_counter()
    with pytest.raises(RecordingError, match=r"a\.csv:3: text behind the closing quote at column 6"):
        load_recordings(path)
    assert time.perf_counter() - started < 15


def test_a_mapped_column_that_is_not_there_is_named_with_those_that_are(tmp_path):
    path = written(tmp_path / "a.csv", "who,says\nX,a\n")
    with pytest.raises(RecordingError, match='no column "speaker" among "who", "says"'):
        load_recordings(path, map="text=says,speaker=speaker")
    with pytest.raises(RecordingError, match="no columns known by their names"):
        load_recordings(path, format="csv")
    with pytest.raises(RecordingError, match="no recording format recognises this file"):
        load_recordings(path)


def test_what_a_table_holds_beside_is_counted_as_dropped(tmp_path):
    """WB-REC-07: the loss report."""
    recordings = load_recordings(written(tmp_path / "a.csv", "role,content,score\nuser,a,5\nassistant,b,4\n"))
    assert any('columns without a meaning here: "score"' in loss for loss in recordings.losses)


def test_other_tables_in_a_folder_are_skipped_and_packed_ones_are_read(tmp_path):
    """WB-REC-01."""
    written(tmp_path / "prices.csv", "item,price\napple,3\n")
    (tmp_path / "chat.csv.gz").write_bytes(gzip.compress(PLAIN.encode()))
    jsonl(tmp_path / "chat.jsonl", {"messages": [{"role": "user", "content": "a"}]})
    recordings = load_recordings(tmp_path)
    assert recordings.formats == {"csv": 2, "openai-chat": 1}
    assert [skipped.path.rsplit("/", 1)[-1] for skipped in recordings.skipped] == ["prices.csv"]


def test_a_table_becomes_the_same_native_recording(tmp_path):
    recordings = load_recordings(written(tmp_path / "a.csv", PLAIN))
    write_recording(tmp_path / "native.jsonl", recordings)
    assert list(load_recordings(tmp_path / "native.jsonl")) == list(recordings)


def test_a_real_corpus_of_questions_and_answers_is_read(shared_path):
    """WB-DATA-02: compared with an independent reader."""
    (path,) = (shared_path / "data" / "korean-chatbot").glob("*.csv")
    with path.open(encoding="utf-8", newline="") as file:
        expected = [row[key] for row in csv.DictReader(file) for key in ("Q", "A")]
    (conversation,) = load_recordings(path, map="user=Q,assistant=A")
    assert contents(conversation) == expected
    assert len(conversation.calls) == len(expected) // 2 > 1000
