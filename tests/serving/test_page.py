"""The page at /, driven in a browser."""

import shutil
from urllib.parse import parse_qs, urlsplit

import pytest

from jobi_tf.serving.settings import ServedModel
from tests.serving.conftest import running
from tests.serving.exports import TOP_K

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tiny):
    with running(_first(tiny)) as server:
        yield server


def _first(tiny) -> ServedModel:
    """Version 1, which is the run."""
    return ServedModel("tiny", tiny[1], latest=None, versions=(1,))


@pytest.fixture(scope="module")
def browser():
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("needs chromium on the PATH: apt-get install chromium")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser, server):
    """A new page; what it complains about, and requests that leave the server, fail the test."""
    page = browser.new_page()
    complaints, elsewhere = [], []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    # Chromium reports answers that are refusals as well; those are what some of the tests are after.
    page.on(
        "console",
        lambda said: complaints.append(said.text) if "Failed to load resource" not in said.text else None,
    )
    page.on("request", lambda request: elsewhere.append(request.url))
    yield page
    page.close()
    assert complaints == []
    assert {urlsplit(url).netloc for url in elsewhere} == {urlsplit(server.rest).netloc}


def message(page) -> str:
    return page.get_by_role("status").inner_text()


def box(page, name: str):
    return page.get_by_role("combobox", name=name)


def shows(page, expected) -> None:
    """Waits until the table has these answers, and compares all of its cells."""
    playwright.expect(page.locator("#answers td.name")).to_have_text([answer.entity for answer in expected])
    rows = page.locator("#answers tbody tr")
    for i, answer in enumerate(expected):
        rank, _, likely, score, known = rows.nth(i).locator("td").all_inner_texts()
        assert (int(rank), score) == (i + 1, f"{answer.score:.3f}")
        assert ("known fact" in known) == answer.known
        assert likely.strip().endswith("%")


def test_a_query_by_the_keyboard(page, server, tiny):
    page.goto(server.rest)
    playwright.expect(page.get_by_role("status")).to_have_text("Choose a head to begin.")
    box(page, "Head").press_sequentially("ENTITY 2")
    playwright.expect(page.get_by_role("option")).to_have_count(11)  # entity 2, entity 20, …
    playwright.expect(box(page, "Head")).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("Escape")
    playwright.expect(page.get_by_role("option")).to_have_count(0)
    page.keyboard.press("ArrowDown")
    playwright.expect(page.get_by_role("option")).to_have_count(11)
    options = page.get_by_role("option").all_inner_texts()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")  # round the end
    page.keyboard.press("ArrowDown")
    playwright.expect(page.get_by_role("option", selected=True)).to_have_text(options[0])
    page.keyboard.press("Enter")
    playwright.expect(box(page, "Head")).to_have_value(options[0])
    playwright.expect(box(page, "Relation")).to_be_focused()
    box(page, "Relation").press_sequentially("1")  # inside a name
    playwright.expect(page.get_by_role("option")).to_have_text(["relation 1"])
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    shows(page, tiny[0].tails(options[0], "relation 1", TOP_K))
    assert message(page) == f"{TOP_K} tails, best first."
    assert parse_qs(urlsplit(page.url).fragment) == {
        "model": ["tiny"],
        "find": ["tail"],
        "entity": [options[0]],
        "relation": ["relation 1"],
    }


def test_a_query_by_the_mouse(page, server, tiny):
    page.goto(server.rest)
    page.get_by_text("The head").click()
    box(page, "Tail").click()
    page.get_by_role("option").nth(3).click()
    tail = box(page, "Tail").input_value()
    page.get_by_role("option").first.click()
    relation = box(page, "Relation").input_value()
    shows(page, tiny[0].heads(relation, tail, TOP_K))
    assert page.get_by_role("columnheader").nth(1).inner_text() == "Head"
    assert page.title() == f"? → {relation} → {tail} · tiny"


def test_a_shared_address(page, server, tiny):
    page.goto(f"{server.rest}/#model=tiny&find=head&entity=entity+4&relation=relation+2")
    expected = tiny[0].heads("relation 2", "entity 4", TOP_K)
    shows(page, expected)
    width = page.locator(".bar").first.evaluate("bar => bar.getBoundingClientRect().width")
    track = page.locator(".track").first.evaluate("track => track.getBoundingClientRect().width")
    status, answer = server.predict(
        {"signature_name": "predict_heads", "instances": [{"relation": "relation 2", "tail": "entity 4"}]}
    )
    assert status == 200
    assert width / track == pytest.approx(answer["predictions"][0]["probability"][0], abs=0.01)


def test_the_other_side_of_the_same_entity(page, server, tiny):
    page.goto(f"{server.rest}/#find=tail&entity=entity+4&relation=relation+2")
    shows(page, tiny[0].tails("entity 4", "relation 2", TOP_K))
    page.get_by_text("The head").click()
    shows(page, tiny[0].heads("relation 2", "entity 4", TOP_K))
    page.go_back()
    shows(page, tiny[0].tails("entity 4", "relation 2", TOP_K))


def test_an_answer_leads_on(page, server, tiny):
    page.goto(f"{server.rest}/#find=tail&entity=entity+4&relation=relation+2")
    best = tiny[0].tails("entity 4", "relation 2", 1)[0].entity
    page.get_by_role("link", name=best).click()
    playwright.expect(box(page, "Head")).to_have_value(best)
    playwright.expect(box(page, "Relation")).to_be_focused()
    playwright.expect(page.get_by_role("status")).to_have_text("Choose a relation to begin.")
    playwright.expect(page.get_by_role("table")).to_be_hidden()


def test_only_new_answers(page, server, tiny):
    run = tiny[0]
    entity = next(
        f"entity {i}" for i in range(30) if 0 < sum(x.known for x in run.tails(f"entity {i}", "relation 1", TOP_K)) < 4
    )
    page.goto(f"{server.rest}/#find=tail&entity={entity}&relation=relation+1")
    expected = run.tails(entity, "relation 1", TOP_K)
    shows(page, expected)
    page.get_by_label("Only what is not a known fact").check()
    new = [answer.entity for answer in expected if not answer.known]
    playwright.expect(page.locator("#answers td.name")).to_have_text(new)
    assert "left out." in message(page)


def test_failures_are_told_in_words(page, server):
    page.goto(f"{server.rest}/#find=tail&entity=nobody&relation=relation+1")
    playwright.expect(page.get_by_role("status")).to_have_text("Unknown entity: nobody.")
    playwright.expect(page.get_by_role("table")).to_be_hidden()
    page.goto(f"{server.rest}/#model=other&find=tail&entity=entity+1&relation=relation+1")
    playwright.expect(page.get_by_role("status")).to_have_text("This server has no model other, but tiny.")
    page.goto(f"{server.rest}/#find=tail&entity=entity+1&relation=relation+1")
    playwright.expect(page.get_by_role("status")).to_have_text(f"{TOP_K} tails, best first.")
    page.route("**/*:predict", lambda route: route.abort())  # the connection breaks
    page.get_by_role("button", name="Find answers").click()
    playwright.expect(page.get_by_role("status")).to_have_text("The server does not answer.")


def test_one_of_several_models(browser, tiny):
    with running(_first(tiny), ServedModel("twice", tiny[1])) as server:
        page = browser.new_page()
        page.goto(f"{server.rest}/#model=twice&find=tail&entity=entity+4&relation=relation+2")
        playwright.expect(page.get_by_label("Model")).to_have_value("twice")
        score = tiny[0].tails("entity 4", "relation 2", 1)[0].score
        playwright.expect(page.locator("#answers td").nth(3)).to_have_text(f"{2 * score:.3f}")
        page.get_by_label("Model").select_option("tiny")
        playwright.expect(page.get_by_role("status")).to_have_text("Choose a head to begin.")
        page.close()


def test_token(browser, tiny):
    with running(_first(tiny), token="secret") as server:
        page = browser.new_page()
        page.goto(f"{server.rest}/#find=tail&entity=entity+4&relation=relation+2")
        playwright.expect(page.get_by_role("status")).to_have_text("The server asks for a token.")
        for token, words in (
            ("wrong", "The server does not take this token."),
            ("secret", f"{TOP_K} tails, best first."),
        ):
            page.get_by_label("This server asks for a token").fill(token)
            page.get_by_role("button", name="Use it").click()
            playwright.expect(page.get_by_role("status")).to_have_text(words)
        playwright.expect(page.get_by_label("This server asks for a token")).to_be_hidden()
        page.close()


def test_light_and_dark(browser, server):
    brightness = {}
    for scheme in ("light", "dark"):
        page = browser.new_page(color_scheme=scheme)
        page.goto(server.rest)
        color = page.evaluate("getComputedStyle(document.body).backgroundColor")
        brightness[scheme] = sum(int(part) for part in color[4:-1].split(","))
        page.close()
    assert brightness["light"] > 600 > 150 > brightness["dark"]


def test_narrow_screens_show_all(browser, server):
    page = browser.new_page(viewport={"width": 320, "height": 600})
    page.goto(f"{server.rest}/#find=tail&entity=entity+4&relation=relation+2")
    playwright.expect(page.locator("#answers td.name")).to_have_count(TOP_K)
    for name in (None, "Democratic Republic of the Congo", "/location/country/form_of_government" * 2):
        page.evaluate("name => name && document.querySelectorAll('.name a').forEach(a => a.textContent = name)", name)
        assert page.evaluate("document.documentElement.scrollWidth") == 320
        assert page.locator(".bar").first.bounding_box()["width"] > 1
    page.close()
