"""The page at /, in a browser."""

import re
import shutil
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.serving.conftest import running

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
pytestmark = pytest.mark.slow


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
    """A new page; errors of its own, and requests to other servers, fail the test."""
    page = browser.new_page()
    errors, hosts = [], set()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda line: errors.append(line.text) if "Failed to load resource" not in line.text else None)
    page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
    yield page
    page.close()
    assert errors == []
    assert hosts == {urlsplit(server.url).netloc}


def field(page, name: str):
    return page.get_by_label(name, exact=True)


def suggestions(page, name: str):
    return page.locator(f"#{name}-names option")


def shows(page, expected) -> None:
    """Waits until the table has these answers, and compares all of its cells."""
    playwright.expect(page.locator("#answers td.name")).to_have_text([answer.entity for answer in expected])
    rows = page.locator("#answers tbody tr")
    for i, answer in enumerate(expected):
        rank, _, probability, score, known = rows.nth(i).locator("td").all_inner_texts()
        assert (int(rank), score) == (i + 1, f"{answer.score:.3f}")
        assert ("known fact" in known) == answer.known
        assert probability.strip().endswith("%")


def test_a_query(page, server, tiny):
    page.goto(server.url)
    field(page, "Head").press_sequentially("ENTITY 2")
    playwright.expect(suggestions(page, "head")).to_have_count(11)  # entity 2, entity 20, …
    head = suggestions(page, "head").first.text_content()
    field(page, "Head").fill(head)
    field(page, "Relation").press_sequentially("1")  # in the middle of a name
    playwright.expect(suggestions(page, "relation")).to_have_text(["relation 1"])
    field(page, "Relation").fill("relation 1")
    field(page, "Answers").fill("7")
    page.keyboard.press("Enter")
    shows(page, tiny[0].tails(head, "relation 1", 7))
    query = {"find": ["tail"], "head": [head], "relation": ["relation 1"], "k": ["7"]}
    assert parse_qs(urlsplit(page.url).fragment) == query


def test_a_shared_address(page, server, tiny):
    page.goto(f"{server.url}/#find=head&tail=entity+4&relation=relation+2")
    shows(page, tiny[0].heads("relation 2", "entity 4", 10))
    assert page.get_by_role("columnheader").nth(1).inner_text() == "Head"
    width = page.locator(".bar").first.evaluate("bar => bar.getBoundingClientRect().width")
    track = page.locator(".track").first.evaluate("track => track.getBoundingClientRect().width")
    row = {"relation": "relation 2", "tail": "entity 4", "k": 1}
    answer = server.predict({"signature_name": "predict_heads", "instances": [row]})[1]
    assert width / track == pytest.approx(answer["predictions"][0]["probability"][0], abs=0.01)


def test_the_other_side_and_back(page, server, tiny):
    page.goto(f"{server.url}/#find=tail&head=entity+4&relation=relation+2")
    shows(page, tiny[0].tails("entity 4", "relation 2", 10))
    page.get_by_text("The head").click()
    shows(page, tiny[0].heads("relation 2", "entity 4", 10))
    page.go_back()
    shows(page, tiny[0].tails("entity 4", "relation 2", 10))


def test_an_answer_is_a_link(page, server, tiny):
    page.goto(f"{server.url}/#find=tail&head=entity+4&relation=relation+2")
    best = tiny[0].tails("entity 4", "relation 2", 1)[0].entity
    page.get_by_role("link", name=best, exact=True).click()
    playwright.expect(field(page, "Head")).to_have_value(best)
    playwright.expect(field(page, "Relation")).to_be_focused()
    playwright.expect(page.get_by_role("table")).to_be_hidden()


def test_only_new_facts(page, server, tiny):
    page.goto(f"{server.url}/#find=tail&head=entity+4&relation=relation+1&k=5")
    shows(page, tiny[0].tails("entity 4", "relation 1", 5))
    page.get_by_label("Only new facts").check()
    shows(page, tiny[0].answers(1, [("entity 4", "relation 1")], 5, new_only=True)[0])


def test_spaces_at_the_ends_of_names(page, server):
    page.goto(f"{server.url}/#find=tail&head=+entity+4&relation=relation+1")
    playwright.expect(page.get_by_role("status")).to_have_text(
        re.compile("the entity  entity 4. Did you mean entity 4?")
    )
    field(page, "Head").press_sequentially(" ")  # which nobody sees
    page.keyboard.press("Enter")
    playwright.expect(field(page, "Head")).to_have_value("entity 4")


def test_failures(page, server):
    status = page.get_by_role("status")
    page.goto(f"{server.url}/#find=tail&head=nobody&relation=relation+1")
    playwright.expect(status).to_have_text("The model does not know the entity nobody.")
    page.goto(f"{server.url}/#find=tail&head=entity+1&relation=rleation+1")
    playwright.expect(status).to_contain_text("Did you mean relation 1")
    playwright.expect(page.get_by_role("table")).to_be_hidden()
    page.goto(f"{server.url}/#find=tail&head=entity+1&relation=relation+1")
    playwright.expect(page.get_by_role("table")).to_be_visible()
    page.route("**/*:predict", lambda route: route.abort())  # the connection breaks
    page.get_by_role("button", name="Find answers").click()
    playwright.expect(status).to_have_class("error")
    playwright.expect(page.get_by_role("table")).to_be_hidden()


def test_a_token(browser, first):
    with running(first, token="secret") as server:
        page = browser.new_page()
        page.goto(f"{server.url}/#find=tail&head=entity+4&relation=relation+2")
        for token in ("wrong", "secret"):
            playwright.expect(page.get_by_role("table")).to_be_hidden()
            field(page, "Token of this server").fill(token)
            page.get_by_role("button", name="Use token").click()
            if token == "wrong":
                playwright.expect(page.get_by_role("status")).to_contain_text("does not accept this token")
        playwright.expect(page.get_by_role("table")).to_be_visible()
        playwright.expect(field(page, "Token of this server")).to_be_hidden()
        page.close()


def test_light_and_dark(browser, server):
    brightness = {}
    for scheme in ("light", "dark"):
        page = browser.new_page(color_scheme=scheme)
        page.goto(server.url)
        color = page.evaluate("getComputedStyle(document.body).backgroundColor")
        brightness[scheme] = sum(int(part) for part in color[4:-1].split(","))
        page.close()
    assert brightness["light"] > 600 > 150 > brightness["dark"]


def test_narrow_screens(browser, server):
    page = browser.new_page(viewport={"width": 320, "height": 600})
    page.goto(f"{server.url}/#find=tail&head=entity+4&relation=relation+2")
    playwright.expect(page.locator("#answers td.name")).to_have_count(10)
    for name in (None, "Democratic Republic of the Congo", "/location/country/form_of_government" * 2):
        page.evaluate("name => name && document.querySelectorAll('.name a').forEach(a => a.textContent = name)", name)
        assert page.evaluate("document.documentElement.scrollWidth") == 320
        assert page.locator(".bar").first.bounding_box()["width"] > 1
    page.close()
