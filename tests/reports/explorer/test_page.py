"""The page in a browser: every view, by mouse and by keyboard, light and dark, narrow and wide."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from ladder.records.run import Results, StageDoc, load
from ladder.records.sources import sources_of
from reports.explorer.page import render
from reports.facts import numbers
from reports.facts.stage_facts import all_stage_facts
from reports.figures.chart import PAGE, PHONE
from reports.figures.ladder import drawn
from reports.figures.style import THEME
from reports.render import render_all
from reports.writers.html import asset
from tests.browser import Open, Opened, violations
from tests.reports import sample

RECORDED = Path("results/reference/h200")
LARGEST = RECORDED / "hidden-128-128-128"
OF_NSYS = RECORDED / "logistic"  # which sees the host, too
MOST_BYTES = 12_500  # for each stage, with its code
FIRST_PAINT_MS = 1000
HOSTILE = "</script><img src=x onerror=document.title='broken'>"
ENDS = ("median", "min", "max")
VIEWS = ("#/", "#/floor", "#/trust", "#/details", "#lesson")


@pytest.fixture(scope="session")
def largest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the recorded run with the most stages and checks."""
    page = tmp_path_factory.mktemp("page") / "report.html"
    run = load(LARGEST)
    page.write_text(render(run, sources_of(run, LARGEST)), encoding="utf-8")
    return page


def reveal(opened: Opened) -> None:
    """Guess a little less than the parent's time, and look at the measurement."""
    opened.page.press("#guess", "ArrowLeft")
    opened.page.click("button.primary")


def names() -> list[str]:
    return [stage.name for stage in load(LARGEST).stages]


def hostile() -> Results:
    """A run whose every text that a user may write is an attack."""
    run = sample.results()
    doc = StageDoc(HOSTILE, HOSTILE, HOSTILE, HOSTILE)
    run = sample.replace_stage(
        run, "async", name=HOSTILE, title=HOSTILE, doc=doc, detail=HOSTILE, changed=HOSTILE, profiles=[
            replace(
                profile, kernels=[replace(kernel, name=HOSTILE) for kernel in profile.kernels]
            )
            for profile in next(stage for stage in run.stages if stage.name == "async").profiles
        ],
    )  # fmt: skip
    run = sample.replace_stage(run, "sparse-metrics", reason=HOSTILE)
    run = sample.replace_stage(run, "cublas", below=HOSTILE)
    problem = replace(run.problem, dataset=HOSTILE, is_mnist=False, dataset_source=HOSTILE)
    return replace(run, problem=problem, environment={"gpu": {"name": HOSTILE, "driver": HOSTILE}})


def test_the_page_is_small_and_the_same_bytes_twice(largest: Path) -> None:
    run, page = load(LARGEST), largest.read_text(encoding="utf-8")
    sources = sources_of(run, LARGEST)
    assert sources is not None
    assert page == render(run, sources)
    assert len(page.encode()) <= MOST_BYTES * len(run.stages)


@pytest.mark.alone
def test_the_picture_is_painted_within_a_second(largest: Path, open_page: Open) -> None:
    painted = [  # the best of three
        opened.ask(
            "new Promise(tell => new PerformanceObserver(list => tell(list.getEntries().map(one => one.startTime)))"
            ".observe({type: 'paint', buffered: true}))"
        )
        for opened in (open_page(largest) for _ in range(3))
    ]
    assert min(max(times) for times in painted) < FIRST_PAINT_MS


def test_a_click_on_a_rung_of_the_picture_shows_it_and_so_does_its_address(largest: Path, open_page: Open) -> None:
    opened = open_page(largest)
    opened.page.click("#ladder .wide a[data-rung=cuda-graph]")
    opened.page.wait_for_selector("article[data-rung=cuda-graph]")
    assert opened.page.url.endswith("#cuda-graph")
    again = open_page(largest, "#cuda-graph")
    assert "Why" in again.text()
    assert again.ask("document.title").startswith("cuda-graph")
    again.page.click("header nav a >> text=Ladder")
    again.page.wait_for_selector("#ladder", state="visible")


def test_the_measurement_waits_for_the_guess(largest: Path, open_page: Open) -> None:
    opened = open_page(largest, "#cuda-graph")
    assert not opened.page.is_visible("article .measured")
    assert opened.text("article output").endswith("as slow as its parent")
    timings = {stage.name: stage.timing for stage in load(LARGEST).stages}
    stage, parent = timings["cuda-graph"], timings["cudnn-softmax"]
    assert stage is not None
    assert parent is not None
    assert opened.text("article .parent") == f"cudnn-softmax: {numbers.microseconds(parent.step_us)} us"
    opened.page.press("#guess", "Enter")
    assert not opened.page.is_visible("article .measured")  # the parent's time is no guess until the slider has moved
    assert opened.text("article .unmoved").startswith("Move the slider first")
    opened.page.keyboard.press("ArrowLeft")
    assert opened.text("article .unmoved") == ""
    assert "1.01x faster than its parent" in opened.text("article output")
    opened.page.keyboard.press("Enter")
    opened.page.wait_for_selector("article .measured .number")
    assert opened.text("article .number").rstrip("†‡") == numbers.microseconds(stage.step_us)
    assert "You guessed" in opened.text(".verdict")
    opened.go("#/")
    opened.go("#cuda-graph")
    assert opened.page.is_visible("article .measured")


def test_measurements_can_be_shown_without_guesses_and_the_address_remembers_it(largest: Path, open_page: Open) -> None:
    opened = open_page(largest, "#cublas")
    opened.page.click("[data-always]")
    for name in ("cublas", "fused-head"):
        opened.go(f"#{name}")
        assert opened.page.is_visible("article .measured"), name
    assert opened.page.url.endswith("#fused-head&all")
    again = open_page(largest, "#fused-head&all")
    assert again.page.is_visible("article .measured")
    again.page.uncheck("#all")
    assert not again.page.is_visible("article .measured")
    assert again.page.url.endswith("#fused-head")
    lesson = open_page(largest, "#lesson/async&all")
    assert not lesson.page.is_visible("article .measured")


@pytest.mark.parametrize(("share", "points"), [(0.5, 50), (2.0, 0), (-1.0, 0)])
def test_a_guess_scores_by_how_much_nearer_it_is_than_the_parent_s_time(
    largest: Path, open_page: Open, share: float, points: int
) -> None:
    """A guess away from the measured time by this share of the way to the parent's."""
    timed = {stage.name: stage.timing for stage in load(LARGEST).stages}
    here, parent = timed["cuda-graph"], timed["cudnn-softmax"]
    assert here is not None
    assert parent is not None
    guess_us = here.step_us * (parent.step_us / here.step_us) ** share
    opened = open_page(largest, "#cuda-graph")
    opened.page.evaluate(
        "factor => { const slider = document.querySelector('#guess'); slider.value = 200 * Math.log10(factor);"
        "slider.dispatchEvent(new Event('input')); }",
        guess_us / parent.step_us,
    )
    opened.page.click("button.primary")
    won = int(opened.text(".verdict strong").split(": ")[1].split()[0])
    assert won == pytest.approx(points, abs=2)  # a step of the slider is 1.2 %


def test_both_ends_of_the_slider_are_guesses(largest: Path, open_page: Open) -> None:
    opened = open_page(largest, "#cuda-graph")
    for key, end in (("Home", "low"), ("End", "high")):
        opened.page.press("#guess", key)
        assert opened.text("article output strong") == opened.text(f"article .{end}")
    opened.page.click("button.primary")
    assert "You guessed" in opened.text(".verdict")


def test_the_revealed_heading_gets_the_focus(largest: Path, open_page: Open) -> None:
    opened = open_page(largest, "#cublas")
    assert opened.page.locator(".verdict").evaluate("one => getComputedStyle(one).display") != "none"  # a live region
    for place, button in (("#cublas", "button.primary"), ("#fused-head", "[data-always]")):
        opened.go(place)
        opened.page.press("#guess", "ArrowLeft")
        opened.page.click(button)
        assert opened.ask("document.activeElement.className") == "time"


def test_what_is_wider_than_the_window_says_so(largest: Path, open_page: Open) -> None:
    opened = open_page(largest, "#/floor", width=400)
    assert "x cheat limit" not in opened.text()
    wide = "'#shown .drawing:not(.narrow, .wide)'"
    cue = f"[...document.querySelectorAll({wide})].map(one => getComputedStyle(one, '::before').content)"
    assert all("Scroll sideways" in text for text in opened.ask(cue))
    frame = opened.page.locator("#shown .drawing:not(.narrow, .wide)").first
    assert "more" in (frame.get_attribute("class") or "")
    frame.evaluate("one => { one.scrollLeft = one.scrollWidth; }")
    opened.page.wait_for_selector("#shown .drawing:not(.narrow, .wide, .more)")
    assert not any("Scroll" in text for text in open_page(largest, "#/floor").ask(cue))


def test_code_is_shown_against_what_it_replaces_and_bars_of_both_timelines_tell(
    tmp_path: Path, open_page: Open
) -> None:
    run, page = load(OF_NSYS), tmp_path / "report.html"
    page.write_text(render(run, sources_of(run, OF_NSYS)), encoding="utf-8")
    opened = open_page(page, "#cuda-graph")
    opened.page.click("[data-always]")
    removed, added = (opened.page.locator(f"article .code .{name}").all_inner_texts() for name in ("removed", "added"))
    assert "class OneByOne(Launch):" in [line.strip() for line in removed]
    assert "class GraphEpoch(Launch):" in [line.strip() for line in added]
    assert opened.page.locator("article .code .k").count() > 5
    commit = run.environment["code"]["git_commit"]
    assert f"Filled in from the recorded commit {commit[:10]}." in opened.text("article")
    opened.page.click("article [data-file$='layer.cu'] summary")
    assert "__global__ void add_bias" in opened.text("article [data-file$='layer.cu'] pre")
    spans = [
        profile.timeline
        for stage in run.stages
        if stage.name in ("cudnn-softmax", "cuda-graph") and (profile := stage.profile) is not None
    ]
    assert opened.page.locator("article rect[data-k]").count() == sum(map(len, spans))
    opened.page.mouse.move(0, 0)  # a pointer on a bar would tell of it
    opened.page.focus("article rect[tabindex='0']")
    assert "LaunchKernel of cudnn-softmax" in opened.text(".told")
    for _ in range(sum(span.row == "host" for span in spans[0])):
        opened.page.keyboard.press("ArrowRight")
    for told in ("of cudnn-softmax", "registers", "occupancy"):
        assert told in opened.text(".told")
    ends = "[...document.querySelectorAll('article rect[data-k]')].map(bar => bar.getBBox()).map(b => b.x + b.width)"
    assert max(opened.ask(ends)) <= 830


def test_each_precision_has_its_own_line_and_each_rung_its_own_comparator() -> None:
    run = load(RECORDED / "hidden-256")
    picture = drawn(run, PAGE).inline()
    assert re.search(r"fastest reference as exact as float32 and tf32: jax-scan, 2\d\.\d us", picture)
    assert re.search(r"fastest reference as exact as bf16/fp16: torch-graph-amp, [12]\d\.\d us", picture)
    assert re.search(r"<title>fused-bias, [\d.]+ us per step, 1\.\d+x as fast as jax-scan, 2\d\.\d us", picture)
    assert picture.count("stroke-dasharray") == drawn(run, PHONE).inline().count("stroke-dasharray")


def test_a_disturbed_time_has_its_mark_on_the_page(open_page: Open, tmp_path: Path) -> None:
    run = load(RECORDED.parent / "h100-80gb-hbm3/hidden-256")
    marked = {row.name for row in all_stage_facts(run) if row.disturbed and not row.is_reference}
    page = tmp_path / "report.html"
    page.write_text(render(run), encoding="utf-8")
    opened = open_page(page)
    shown = (
        "[...document.querySelectorAll('#ladder .wide a.row')].filter(row => /[†‡]/.test(row.textContent))"
        ".map(row => row.dataset.rung)"
    )
    assert set(opened.ask(shown)) == marked
    assert "†: a disturbed process" in opened.text("#ladder")
    opened.go("#naive")
    assert opened.text("article .number")[-1] in "†‡"


def test_a_reference_shows_its_time_at_once(largest: Path, open_page: Open) -> None:
    opened = open_page(largest, "#lesson/torch-compile")
    assert opened.page.is_visible("article .measured .number")
    assert not opened.page.is_visible("article .guess")
    (row,) = (row for row in all_stage_facts(load(LARGEST)) if row.name == "torch-compile")
    assert f"torch-compile {row.step} us/step" in open_page(largest).text("#ladder")


def test_every_rung_can_be_reached_by_keyboard(largest: Path, open_page: Open) -> None:
    opened = open_page(largest)
    reached = set()
    for _ in range(120):
        opened.page.keyboard.press("Tab")
        reached.add(opened.ask("decodeURIComponent((document.activeElement.getAttribute('href') || '').slice(1))"))
    assert reached >= set(names())
    assert reached >= {"/floor", "/trust", "lesson"}
    opened.page.focus("#ladder .wide a[data-rung=naive]")
    opened.page.keyboard.press("ArrowDown")
    assert opened.ask("document.activeElement.dataset.rung") == "async"
    opened.page.keyboard.press("Enter")
    opened.page.wait_for_selector("article[data-rung=async]")
    opened.page.evaluate("document.activeElement.blur()")
    opened.page.keyboard.press("ArrowRight")
    opened.page.wait_for_selector("article[data-rung=cublas]")


def test_the_rung_that_one_climbs_from_is_marked_while_one_points_at_a_rung(largest: Path, open_page: Open) -> None:
    opened = open_page(largest)
    marked = "[...document.querySelectorAll('#ladder .wide a.row.parent')].map(row => row.dataset.rung)"
    assert opened.ask(marked) == []
    opened.page.hover("#ladder .wide a[data-rung=persistent-grid]")
    assert opened.ask(marked) == ["cuda-graph"]
    opened.page.hover("h1:visible")
    assert opened.ask(marked) == []
    opened.page.focus("#ladder .wide a[data-rung=async]")
    assert opened.ask(marked) == ["naive"]
    opened.page.focus("#ladder .wide a[data-rung=naive]")
    assert opened.ask(marked) == []


def test_a_precision_can_be_left_out_of_the_picture_that_leads_into_the_lesson(largest: Path, open_page: Open) -> None:
    opened = open_page(largest)
    assert " as fast as jax-scan-bf16, " in opened.text("h1.measured")
    off = "[...document.querySelectorAll('#ladder .wide a.row.off')].map(row => row.dataset.rung)"
    assert opened.ask(off) == []
    opened.page.uncheck("input[value='bf16/fp16']")
    left_out = opened.ask(off)
    assert {"bf16", "cluster-fp16"} <= set(left_out)
    assert "exact-u8" not in left_out
    opened.page.click("text=Start the lesson")
    opened.page.wait_for_selector("p#lesson:visible")
    assert not opened.page.is_visible("text=Start the lesson")


def test_a_lesson_hides_every_time_until_its_guess_and_keeps_the_score(largest: Path, open_page: Open) -> None:
    opened = open_page(largest, "#lesson")
    times = "[...document.querySelectorAll('#ladder .wide a.row')].filter(row => row.querySelector('.measured')" \
        ".getClientRects().length).map(row => row.dataset.rung)"  # fmt: skip
    assert opened.ask(times) == ["naive"]
    labels = opened.ask("[...document.querySelectorAll('#ladder .wide a.row')].map(row => row.ariaLabel).join()")
    assert labels.count("not guessed yet") > 10
    assert " us per step" not in labels.replace(labels.partition(",async")[0], "")
    assert "0 of " in opened.text("#lesson")
    for place in ("#/floor", "#/trust", "#/details"):
        opened.go(place)
        assert "opens once every rung is guessed" in opened.text()
    opened.go("#cublas")
    assert "First guess async" in opened.text()
    assert "us/step" not in opened.text("article .climbs")
    opened.go("#async")
    reveal(opened)
    assert "1 of " in opened.text("#lesson")
    assert "of 100 points" in opened.text("#lesson")
    assert "Next: cublas" in opened.text("#lesson")
    opened.go("#lesson")
    assert opened.ask(times) == ["naive", "async"]
    opened.page.click("text=Leave the lesson")
    assert len(opened.ask(times)) > 10
    assert opened.page.url.endswith("#/")


def test_a_reload_stays_in_the_lesson_and_keeps_its_guesses(largest: Path, open_page: Open) -> None:
    opened = open_page(largest, "#lesson")
    opened.page.click("#ladder .wide a[data-rung=async]")
    opened.page.wait_for_selector("#guess:visible")
    assert opened.page.url.endswith("#lesson/async")
    reveal(opened)
    opened.page.click("text=Next: cublas >> a")
    opened.page.wait_for_selector("article[data-rung=cublas]")
    assert opened.page.url.endswith("#lesson/cublas")
    opened.page.reload()
    opened.page.wait_for_selector("#guess:visible")
    assert "1 of " in opened.text("#lesson")
    assert not opened.page.is_visible("article .measured")
    opened.go("#async")
    assert "You guessed" in opened.text(".verdict")
    opened.page.click("text=Start over")
    opened.page.reload()
    opened.page.wait_for_selector("#guess:visible")
    assert "0 of " in opened.text("#lesson")
    opened.page.click("text=Leave the lesson")
    opened.page.reload()
    opened.page.wait_for_selector("html.ready")
    assert not opened.page.is_visible("#lesson")


def test_a_browser_that_keeps_nothing_can_guess_all_the_same(largest: Path, open_page: Open) -> None:
    refuses = "Object.defineProperty(window, 'sessionStorage', {get() { throw new DOMException('refused'); }})"
    opened = open_page(largest, "#lesson/async", before=refuses)
    reveal(opened)
    assert "1 of " in opened.text("#lesson")


def test_both_themes_and_the_button_between_them(largest: Path, open_page: Open) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    colours = ["rgb(255, 255, 255)", "rgb(13, 17, 23)"]
    for theme, expected in (("light", colours), ("dark", colours[::-1])):
        opened = open_page(largest, theme=theme)
        before = opened.ask(paper)
        opened.page.click("#theme")
        assert [before, opened.ask(paper)] == expected
        opened.ask("localStorage.clear()")


def test_no_style_sheet_gives_a_colour_of_figures_another_value() -> None:
    sheets = [
        *map(asset, ("explorer.css", "screen.css")),
        Path("tools/site/theme/site.css").read_text(encoding="utf-8"),
    ]
    assert set(re.findall(r"--([\w-]+):", "".join(sheets))).isdisjoint(THEME)


def test_no_view_is_wider_than_the_window(largest: Path, open_page: Open) -> None:
    opened = open_page(largest)
    for place in (*VIEWS[:3], "#naive", "#persistent-cluster", "#jax-scan"):
        opened.go(place)
        if opened.page.is_visible("[data-always]"):
            opened.page.click("[data-always]")
        for width in (360, 680, 900, 1280, 1600):
            opened.page.set_viewport_size({"width": width, "height": 900})
            assert opened.ask("document.documentElement.scrollWidth") <= width, (place, width)


def test_a_telephone_shows_the_pictures_of_the_ladder_and_of_a_change_without_scrolling(
    largest: Path, open_page: Open
) -> None:
    opened = open_page(largest, "#cublas&all")
    opened.page.set_viewport_size({"width": 390, "height": 900})
    for place in ("#cublas", "#/"):
        opened.go(place)
        cut = "[...document.querySelectorAll('.drawing.narrow')].filter(one => one.checkVisibility())"
        assert opened.ask(f"{cut}.map(one => one.scrollWidth <= one.clientWidth)") == [True]


def test_a_reason_for_a_missing_time_is_whole_on_a_telephone(tmp_path: Path, open_page: Open) -> None:
    why = "Needs a network without hidden layers; this one has three of them. Closest rung here: `persistent-cluster`."
    page = tmp_path / "report.html"
    run = sample.replace_stage(sample.results(), "async", status="skipped", reason=why)
    page.write_text(render(run), encoding="utf-8")
    box = open_page(page, "#/trust", width=360).page.locator("td.why span").first.bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= 360


def test_perfetto_gets_the_trace_only_after_a_click_and_its_answer(largest: Path, open_page: Open) -> None:
    stub = """
        window.sent = [];
        window.open = url => ({postMessage: (message, origin) => { window.sent.push([url, message, origin]);
            if (message === 'PING') window.dispatchEvent(new MessageEvent('message', {data: 'PONG', origin})); }});
    """
    opened = open_page(largest, "#cuda-graph", before=stub)
    opened.page.click("[data-always]")
    assert opened.ask("window.sent.length") == 0
    opened.page.click("[data-perfetto]")
    opened.page.wait_for_timeout(300)
    trace = opened.ask(
        "(() => { const [url, {perfetto}, origin] = window.sent.at(-1);"
        "return [url, origin, perfetto.title, JSON.parse(new TextDecoder().decode(perfetto.buffer)).traceEvents]; })()"
    )
    assert trace[:3] == ["https://ui.perfetto.dev", "https://ui.perfetto.dev", "cuda-graph: three steps"]
    (stage,) = (stage for stage in load(LARGEST).stages if stage.name == "cuda-graph")
    assert stage.profile is not None
    names = [event["name"] for event in trace[3] if event["ph"] == "X"]
    assert names == [span.name for span in stage.profile.timeline]


def test_hostile_texts_are_shown_as_text(tmp_path: Path, open_page: Open) -> None:
    page = tmp_path / "report.html"
    page.write_text(render(hostile()), encoding="utf-8")
    opened = open_page(page)
    assert HOSTILE in opened.text("#ladder")
    assert HOSTILE in opened.ask("document.title")
    opened.page.click("#ladder .wide a.row >> nth=1")
    opened.page.click("[data-always]")
    assert opened.text("article").count(HOSTILE) >= 5
    for place in VIEWS:
        opened.go(place)
        assert opened.ask("document.querySelectorAll('img').length") == 0


def test_a_browser_without_decompression_says_what_is_missing(largest: Path, open_page: Open) -> None:
    opened = open_page(largest, before="delete window.DecompressionStream", ready="#unpacking:not(:empty)")
    assert "This browser cannot unpack the rungs" in opened.text("#unpacking")
    assert opened.page.is_visible("#ladder svg")


def test_the_views_have_no_accessibility_violations(largest: Path, open_page: Open) -> None:
    found = []
    for theme in ("light", "dark"):
        opened = open_page(largest, theme=theme)
        for place in (*VIEWS[:3], "#naive", "#cuda-graph", "#persistent-grid", "#lesson"):
            opened.go(place)
            for _ in range(2):  # the guess, then the measurement
                found += [f"{theme} {place}: {one}" for one in violations(opened, only_colours=theme == "dark")]
                if not opened.page.is_visible("button.primary"):
                    break
                reveal(opened)
    assert found == []


def test_a_run_without_a_gpu_says_so_and_where_the_recorded_ladder_is(tmp_path: Path, open_page: Open) -> None:
    run, why = load(RECORDED / "logistic"), "no CUDA device"
    disturbed = [
        replace(process, disturbed=["other work"])
        for stage in run.stages
        if stage.name == "numpy"
        for process in stage.processes
    ]
    stages = [
        replace(stage, processes=disturbed)
        if stage.name == "numpy"
        else replace(stage, status="skipped", reason=why, timing=None, device=None, processes=[])
        for stage in run.stages
    ]
    run = replace(run, stages=stages, environment={})
    render_all(run, tmp_path, Path("results/reference").resolve())
    opened = open_page(tmp_path / "report.html")
    assert "python run_ladder.py open results/reference/h100-80gb-hbm3/logistic" in opened.text("#ladder")
    assert opened.text("#ladder").count(why) == 1
    assert f"{len(stages) - 1} stages skipped: {why}" in opened.text("#ladder details summary >> nth=0")
    assert opened.text("#ladder h1.measured").endswith(", on the CPU, disturbed by other work")
    opened.go("#/floor")
    assert "This run had no GPU" in opened.text()


def test_the_prediction_waits_for_the_guess_and_the_change_is_told_in_words(largest: Path, open_page: Open) -> None:
    opened = open_page(largest, "#fused-head")
    change = "by one choice: one kernel computes softmax, loss, their gradient and the totals."
    assert change in opened.text("article .climbs")
    assert "Expect" not in opened.text("article")
    reveal(opened)
    texts = ("You guessed", "us per step", "Expect", "Predicted")
    places = [opened.text("article").index(text) for text in texts]
    assert places == sorted(places)


def test_an_unknown_rung_is_named(largest: Path, open_page: Open) -> None:
    for name in ("bogus", "%"):
        opened = open_page(largest, f"#{name}")
        assert opened.text("#unknown") == f"No rung called {name} in this run."
        opened.go("#/")
        assert not opened.page.is_visible("#unknown")


def test_the_view_of_trust_tells_checks_in_words(largest: Path, open_page: Open) -> None:
    opened = open_page(largest, "#/trust")
    assert opened.page.locator("#shown td:empty").count() == 0
    assert "not made for this stage" in opened.text(".legend")
    button = opened.page.locator("button[aria-label='Checks of naive in words']")
    button.press("Enter")
    told = opened.page.locator(".trust td.why li")
    cells = opened.page.locator(".trust tr:has(button[aria-expanded=true]) .cell")
    assert button.get_attribute("aria-expanded") == "true"
    assert told.count() == cells.count() > 10
    assert any("first update" in text for text in told.all_inner_texts())
    assert violations(opened) == []
    cells.first.click()  # anywhere in the row
    assert told.count() == 0
    assert button.get_attribute("aria-expanded") == "false"


def test_the_list_of_rungs_has_the_times_that_need_no_guess(largest: Path, open_page: Open) -> None:
    opened = open_page(largest, "#cuda-graph")
    link, reference = ("#rungs a[href='#cuda-graph']", "#rungs a[href='#jax-scan']")
    assert opened.text(link) == "cuda-graph"
    assert float(opened.text(reference).split()[1].rstrip("\N{DAGGER}\N{DOUBLE DAGGER}")) > 1
    (us,) = (stage.timing.step_us for stage in load(LARGEST).stages if stage.name == "cuda-graph" and stage.timing)
    opened.page.evaluate("location.hash = '#cuda-graph&all'")
    opened.page.wait_for_selector(f"{link} span")
    assert float(opened.text(f"{link} span")) == pytest.approx(us, rel=0.01)
