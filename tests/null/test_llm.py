"""Language models: what is asked over real HTTP, what is taken from answers, what goes wrong."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from llm_server import ModelServer

from assay.llm import LANGUAGES, Prompts, Settings, Spoken, complete, extract, read_settings
from assay.records import UserError

PROMPT = Spoken("be brief", "write a kernel")


def asked(server: ModelServer, provider: str = "openai", **others: object) -> Settings:
    url = server.url if provider == "openai" else server.url.removesuffix("/v1")
    return Settings(provider, "tiny", url, retries=1, **others)


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_both_protocols_carry_prompt_answer_and_price(provider: str) -> None:
    with ModelServer(lambda prompt: f"you said: {prompt}") as server:
        settings = asked(server, provider, temperature=0.5, price_in_usd=2.0, price_out_usd=10.0)
        answer = complete(settings, PROMPT)
    assert answer.text == "you said: write a kernel" and not answer.refusal
    assert (answer.tokens_in, answer.tokens_out) == (100, 50)
    assert answer.cost_usd == pytest.approx(100 * 2e-6 + 50 * 10e-6)
    (request,) = server.asked
    assert request["model"] == "tiny" and request["max_tokens"] == 16384 and request["temperature"] == 0.5
    system = request.get("system") or request["messages"][0]["content"]
    assert system == "be brief"


def test_an_unknown_price_is_not_nothing() -> None:
    with ModelServer(lambda _: "hello") as server:
        answer = complete(asked(server), PROMPT)
    assert answer.cost_usd is None and "temperature" not in server.asked[0]


@pytest.mark.parametrize("usage", [None, "many", {"prompt_tokens": -5}, {"prompt_tokens": 10**30}])
def test_a_server_that_does_not_tell_tokens_makes_the_cost_unknown(usage: object) -> None:
    message = {"role": "assistant", "content": "hello"}
    body = {"choices": [{"index": 0, "message": message}], "usage": usage}
    with ModelServer(lambda _: (200, json.dumps(body))) as server:
        answer = complete(asked(server, price_in_usd=1.0, price_out_usd=1.0), PROMPT)
    assert (answer.text, answer.tokens_in, answer.cost_usd) == ("hello", None, None)


def test_what_may_pass_is_tried_again() -> None:
    replies = iter([(429, '{"error": {"message": "slow down"}}'), "there"])
    with ModelServer(lambda _: next(replies)) as server:
        assert complete(asked(server), PROMPT).text == "there"
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    "status, body, why",
    [
        (401, '{"error": {"message": "bad key"}}', "is OPENAI_API_KEY right"),
        (404, '{"error": {"message": "no such model"}}', "is the model's name right"),
        (429, '{"error": {"message": "slow down"}}', "still limited after 1 tries"),
        (500, "oops", "Error code: 500"),
        (200, "<html>a proxy's page</html>", "speaks no protocol known here"),
        (200, '{"hello": 1}', "speaks no protocol known here"),
        (200, '{"choices": []}', "speaks no protocol known here"),
        (200, '{"choices": "all"}', "speaks no protocol known here"),
    ],
)
def test_an_endpoint_that_will_not_work_is_one_line(status: int, body: str, why: str) -> None:
    with ModelServer(lambda _: (status, body)) as server, pytest.raises(UserError, match=why) as raised:
        complete(asked(server), PROMPT)
    assert "\n" not in str(raised.value)


def test_a_dead_endpoint_is_one_line() -> None:
    with ModelServer(lambda _: "") as server:
        settings = asked(server)
    with pytest.raises(UserError, match="does not answer .* is it running"):
        complete(settings, PROMPT)


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_prompt_that_is_refused_ends_that_turn_alone(status: int) -> None:
    with ModelServer(lambda _: (status, '{"error": {"message": "too long"}}')) as server:
        answer = complete(asked(server), PROMPT)
    assert answer.text == "" and "too long" in answer.refusal


def test_half_a_character_can_be_written_down() -> None:
    body = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "a\ud800b"}}]}
    with ModelServer(lambda _: (200, json.dumps(body))) as server:
        assert complete(asked(server), PROMPT).text.encode() == b"a?b"


def test_a_model_is_named_by_provider_and_name() -> None:
    assert read_settings("anthropic:some-model", price="3/15").label == "anthropic:some-model"
    assert read_settings("openai:org/name:tag", "http://localhost:1/v1").model == "org/name:tag"


@pytest.mark.parametrize(
    "model, url, price, why",
    [
        ("gpt", "", "", "write provider:name"),
        ("nobody:x", "", "", "openai, anthropic"),
        ("openai:", "", "", "write provider:name"),
        ("openai:x", "localhost:80", "", "no address"),
        ("openai:x", "", "cheap", "write IN/OUT"),
        ("openai:x", "", "3", "write IN/OUT"),
        ("openai:x", "", "-1/2", "write IN/OUT"),
        ("openai:x", "", "nan/2", "write IN/OUT"),
    ],
)
def test_other_names_are_refused(model: str, url: str, price: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        read_settings(model, url, price)


def test_a_provider_wants_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(UserError, match="set OPENAI_API_KEY"):
        complete(Settings("openai", "keyless"), PROMPT)


PLAN = "First a plan.\n\n"
KERNEL = "def forward(x):\n    return x\n"


@pytest.mark.parametrize(
    "text, source, suffix",
    [
        (f"{PLAN}```python\n{KERNEL}```\nDone.", KERNEL, ".py"),
        (
            f"```py\nprint(1)\n```\n```python\n{KERNEL}```\n```\nusage: call forward with a long text\n```",
            KERNEL,
            ".py",
        ),
        (f"```python\nx = 1\n```\nbetter:\n```python\n{KERNEL}```", KERNEL, ".py"),
        (f"````\n```\n{KERNEL}```\n````", f"```\n{KERNEL}```\n", ".py"),
        (f"{PLAN}```python\n{KERNEL}", KERNEL, ".py"),
        (KERNEL, KERNEL, ".py"),
        (
            "```cpp\n// assay: call f(x)\n#include <cmath>\n```",
            "// assay: call f(x)\n#include <cmath>\n",
            ".cpp",
        ),
        ("```cpp\n// assay: launch f<<<1, 1>>>(x)\n```", "// assay: launch f<<<1, 1>>>(x)\n", ".cu"),
        ("```\n__global__ void f() {}\n```", "__global__ void f() {}\n", ".cu"),
        ("~~~CUDA\n// assay: return y\n~~~", "// assay: return y\n", ".cu"),
        ("I cannot help with that.", "I cannot help with that.\n", ".py"),
        ("", "\n", ".py"),
    ],
)
def test_the_kernel_is_found_in_an_answer(text: str, source: str, suffix: str) -> None:
    found = extract(text)
    assert (found.source, found.suffix) == (source, suffix)


def test_whatever_an_answer_holds_something_is_taken_from_it() -> None:
    pieces = [
        "```",
        "~~~",
        "```python\n",
        "\n",
        "def forward(x):",
        "\0",
        "\u2028",
        "`",
        "// assay:",
        "é",
        " " * 50,
    ]
    draw = random.Random(7)
    for _ in range(500):
        text = "".join(draw.choices(pieces, k=draw.randrange(30)))
        found = extract(text)
        assert found.suffix in (".py", ".cu", ".cpp") and found.source.endswith("\n")


@pytest.mark.parametrize("language", LANGUAGES)
def test_prompts_hold_the_problem_and_a_worked_example(language: str) -> None:
    prompts = Prompts.read(language)
    values = {"device": "a GPU", "problem": "class Model: costs $5", "fence": "python"}
    first = prompts.first(values)
    assert "class Model: costs $5" in first.user and "scale_rows" in first.user and first.system
    later = {"attempts": "1. wrong", "candidate": "def forward", "feedback": "Verdict: wrong."}
    assert "Verdict: wrong." in prompts.next({**values, **later}).user


def test_a_folder_of_prompts_replaces_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "first.md").write_text("do $problem for $$5")
    own = Prompts.read("cpp", tmp_path)
    values = {"device": "", "problem": "it", "fence": ""}
    assert own.first(values).user == "do it for $5"
    assert own.digest != Prompts.read("cpp").digest
    # Told before anything is asked, whatever turn it would be said in.
    (tmp_path / "next.md").write_text("do $nothing_known")
    with pytest.raises(UserError, match="nothing is known as \\$nothing_known"):
        Prompts.read("cpp", tmp_path)
    (tmp_path / "next.md").write_text("costs 5$")
    with pytest.raises(UserError, match="write \\$\\$"):
        Prompts.read("cpp", tmp_path)


def test_a_folder_without_prompts_says_what_they_are_called(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds none of system.md, first.md"):
        Prompts.read("cpp", tmp_path)
    with pytest.raises(UserError, match="no such folder"):
        Prompts.read("cpp", tmp_path / "nowhere")
