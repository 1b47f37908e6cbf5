"""Malformed rules: each gives exactly one error, at its place, with what to do about it."""

from pathlib import Path

import pytest

from penstock.metrics import Diagnostic, parse_files, parse_rules

SHAPE = "a rule reads: name = from(Source.attribute).filter(condition).function();"
SOURCES = (
    "sources are: Service, ServiceInstance, Endpoint, ServiceRelation, ServiceInstanceRelation, "
    "EndpointRelation, DatabaseAccess, CacheAccess, MQAccess, MQEndpointAccess"
)
FUNCTIONS = (
    "functions are longAvg, doubleAvg, sum, count, max, min, maxDouble, minDouble, cpm, percent, "
    "rate, apdex, percentile, percentile2, histogram, labelCount, labelAvg"
)
LONGS = "name an attribute: Service.httpResponseStatusCode, Service.latency, Service.rpcStatusCode"
REQUEST_TYPES = (
    "write one of RequestType.HTTP, RequestType.RPC, RequestType.gRPC, RequestType.DATABASE, "
    "RequestType.MQ, RequestType.TCP"
)
ONE_FILTER_EACH = "write one filter for each condition: .filter(…).filter(…)"
NO_OR = 'there is no "or"; compare with several values by "in", or define two metrics'
NAMES = "the name of a metric consists of letters, digits and _; then comes ="
CONSTANTS = (
    "compare with a number, true, false, null, a text in double quotes or a constant such as "
    "RequestType.MQ"
)
CASTS = "casts are (str->long), (str->int) and (str->double)"

DATABASE_ATTRIBUTES = (
    "DatabaseAccess has databaseType, latency, name, namespace, operation, serviceName, status, "
    'tags, tag["key"]'
)
NO_LABEL = (
    'argument 1 of labelCount must be a string or a long or a bool, and "tags" is a list of strings'
)
LABELS = (
    "choose one of: endpointName, httpResponseStatusCode, latency, name, rpcStatusCode, "
    "serviceInstanceName, status, type"
)

# The offending part of each rule stands between « and »; an error that is found past the end of
# something has nothing between them. The marks are taken out before the rule is read.
FROM = [
    ("m = from(«Servise».*).cpm();", 'unknown source "Servise"', 'did you mean "Service"?'),
    ("m = from(«service».*).cpm();", 'unknown source "service"', 'did you mean "Service"?'),
    ("m = from(«All».latency).longAvg();", 'unknown source "All"', SOURCES),
    ("m = from(«All».latency).apdex(name, status);", 'unknown source "All"', SOURCES),
    (
        'm = from(«tag»["x"]).longAvg();',
        'unknown source "tag"',
        "name the source first: Source.tag",
    ),
    (
        "m = from(«Service»).cpm();",
        "Service is a source, and the value is missing",
        "write Service.* or an attribute such as Service.latency",
    ),
    (
        "m = from(Service.«latencyy»).longAvg();",
        'unknown attribute "latencyy" of Service',
        'did you mean "latency"?',
    ),
    (
        "m = from(Service.«sideCar.latency»).longAvg();",
        'unknown attribute "sideCar.latency" of Service',
        'did you mean "latency"?',
    ),
    (
        "m = from(Service.«sideCar»\n.latency).longAvg();",
        'unknown attribute "sideCar.latency" of Service',
        'did you mean "latency"?',
    ),
    (
        "m = from(DatabaseAccess.«foo»).longAvg();",
        'unknown attribute "foo" of DatabaseAccess',
        DATABASE_ATTRIBUTES,
    ),
    (
        "m = from(Service.«latency».*).cpm();",
        '"*" follows the source itself, not "latency"',
        "write Service.*",
    ),
    (
        "m = from(«(str->long)»Service.latency).longAvg();",
        '"Service.latency" is a long; only strings are cast',
        "leave the cast out",
    ),
    ('m = from(«(str->bool)»Service.tag["x"]).longAvg();', 'unknown cast "(str->bool)"', CASTS),
    (
        'm = from(Service.*).filter(«(int->long)»tag["x"] > 5).cpm();',
        'unknown cast "(int->long)"',
        CASTS,
    ),
]
CONDITIONS = [
    (
        "m = from(Service.*)\n  .filter(«staus» == true)\n  .cpm();",
        'unknown attribute "staus" of Service',
        'did you mean "status"?',
    ),
    (
        "m = from(Service.*).filter(«Service.status» == true).cpm();",
        'unknown attribute "Service.status" of Service',
        'attributes are those of Service: write "status"',
    ),
    ('m = from(Service.*).filter(«tag» == "x").cpm();', "tag needs a key", 'write tag["key"]'),
    (
        'm = from(Service.*).filter(«tag.x» == "x").cpm();',
        'unknown attribute "tag.x" of Service',
        'write tag["x"]',
    ),
    (
        'm = from(Service.*).filter(«name»["x"] == "x").cpm();',
        'name["x"]: only tag has keys',
        'write tag["x"]',
    ),
    (
        'm = from(Service.*).filter(tag[«""»] == "x").cpm();',
        "the key of a tag is empty",
        'write tag["key"]',
    ),
    (
        "m = from(Service.*).filter(type == «RequestTyp».MQ).cpm();",
        'unknown enumeration "RequestTyp"',
        'did you mean "RequestType"?',
    ),
    (
        "m = from(Service.*).filter(type == «Foo».MQ).cpm();",
        'unknown enumeration "Foo"',
        "there are: RequestType, DetectPoint, VirtualCacheOperation, MQOperation",
    ),
    (
        "m = from(Service.*).filter(type == RequestType.«HTPP»).cpm();",
        'unknown constant "HTPP" of RequestType',
        'did you mean "HTTP"?',
    ),
    (
        "m = from(MQAccess.*).filter(operation == MQOperation.«X»).cpm();",
        'unknown constant "X" of MQOperation',
        "MQOperation has: Produce, Consume",
    ),
    (
        "m = from(Service.*).filter(type == «DetectPoint.CLIENT»).cpm();",
        '"type" is an enumeration (RequestType) and cannot be compared with DetectPoint.CLIENT',
        REQUEST_TYPES,
    ),
    (
        'm = from(Service.*).filter(type == «"mq"»).cpm();',
        '"type" is an enumeration (RequestType) and cannot be compared with a string',
        "write RequestType.MQ",
    ),
    (
        "m = from(DatabaseAccess.*).filter(operation == «VirtualCacheOperation.Read»).cpm();",
        '"operation" is a string and cannot be compared with VirtualCacheOperation.Read',
        "write a text in double quotes",
    ),
    ("m = from(Service.*).filter(name == «shop»).cpm();", '"shop" is not a constant', CONSTANTS),
    (
        "m = from(Service.*).filter(name «>» 5).cpm();",
        '">" is for numbers, and "name" is a string',
        "cast it: (str->long)name",
    ),
    (
        "m = from(Service.*).filter(type «<=» 5).cpm();",
        '"<=" is for numbers, and "type" is an enumeration (RequestType)',
        "compare with ==",
    ),
    (
        'm = from(Service.*).filter(tags «>=» "x").cpm();',
        '">=" is for numbers, and "tags" is a list of strings',
        'write contain "key:value"',
    ),
    (
        'm = from(Service.*).filter(tag["n"] == «5»).cpm();',
        'tag["n"] is a string and cannot be compared with a number',
        'write "5", or cast the left side: (str->long)tag["n"]',
    ),
    (
        'm = from(Service.*).filter(latency == «"500"»).cpm();',
        '"latency" is a long and cannot be compared with a string',
        "write 500 without quotes",
    ),
    (
        "m = from(Service.*).filter(latency == «true»).cpm();",
        '"latency" is a long and cannot be compared with a bool',
        "write a number",
    ),
    (
        "m = from(Service.*).filter(status == «1»).cpm();",
        '"status" is a bool and cannot be compared with a number',
        "write true or false",
    ),
    (
        'm = from(Service.*).filter(httpResponseStatusCode «like» "5%").cpm();',
        '"like" is for strings, and "httpResponseStatusCode" is a long',
        "compare with >= and <",
    ),
    (
        'm = from(Service.*).filter(tags «like» "5%").cpm();',
        '"like" is for strings, and "tags" is a list of strings',
        'write contain "key:value"',
    ),
    (
        'm = from(Service.*).filter(status «like» "5%").cpm();',
        '"like" is for strings, and "status" is a bool',
        "compare with ==",
    ),
    (
        'm = from(Service.*).filter(name «contain» "x").cpm();',
        '"contain" is for lists of strings (tags), and "name" is a string',
        'write like "%…%"',
    ),
    (
        "m = from(Service.*).filter(latency «not contain» 5).cpm();",
        '"not contain" is for lists of strings (tags), and "latency" is a long',
        "compare with ==",
    ),
    (
        'm = from(Service.*).filter(tags «==» "a:b").cpm();',
        '"==" is for single values, and "tags" is a list of strings',
        'write contain "key:value"',
    ),
    (
        "m = from(Service.*).filter(tags contain «5»).cpm();",
        '"tags" is a list of strings and cannot be compared with a number',
        'write a text: "key:value"',
    ),
    (
        'm = from(Service.*).filter(name in «"x"»).cpm();',
        '"in" needs a list on its right side',
        'write in ("a", "b"), or compare with ==',
    ),
    (
        'm = from(Service.*).filter(name == «("x", "y")»).cpm();',
        '"==" compares with one value, not with a list',
        'write "in" to compare with several values',
    ),
    (
        "m = from(Service.*).filter(name in «[]»).cpm();",
        "the list is empty",
        "name at least one value",
    ),
    (
        'm = from(Service.*).filter(name in ["x", «5»]).cpm();',
        '"name" is a string and cannot be compared with a number',
        'write "5", or cast the left side: (str->long)name',
    ),
    (
        'm = from(Service.*).filter(name in ("x", «null»)).cpm();',
        '"in" cannot be used with null',
        "write == null or != null",
    ),
    (
        "m = from(Service.*).filter(latency > «null»).cpm();",
        '">" cannot be used with null',
        "write == null or != null",
    ),
    (
        r'm = from(Service.*).filter(name == "a«\d»+").cpm();',
        r"unknown escape \d",
        r"escapes are \" \\ \/ \b \f \n \r \t and \uXXXX",
    ),
    (
        r'm = from(Service.*).filter(name == «"\ud800"»).cpm();',
        "half a character (a lone surrogate)",
        "write the character itself",
    ),
    (
        "m = from(Service.*).filter(latency > «9223372036854775808»).cpm();",
        '"9223372036854775808" does not fit into 64 bits',
        "the largest number is 9223372036854775807",
    ),
    (
        f"m = from(Service.*).filter(latency > «{'9' * 5000}»).cpm();",
        f'"{"9" * 59}…" does not fit into 64 bits',
        "the largest number is 9223372036854775807",
    ),
    (
        "m = from(Service.*).filter(latency > «1e999»).cpm();",
        '"1e999" is too large',
        "choose a smaller number",
    ),
]
CALLS = [
    (
        "m = from(Service.latency).«longAv»();",
        'unknown function "longAv"',
        'did you mean "longAvg"?',
    ),
    (
        "m = from(Service.latency).«p99»(10);",
        'unknown function "p99"',
        'did you mean "percentile2(10)"?',
    ),
    (
        "m = from(Service.latency).«fliter»(status == true).longAvg();",
        'unknown function "fliter"',
        'did you mean "filter"?',
    ),
    (
        "m = from(Service.latency).«gauge»();",
        "gauge is what metric points become; rules cannot call it",
        FUNCTIONS,
    ),
    (
        "«m» = from(Service.latency);",
        'metric "m" has no function',
        "end the rule with one, such as .cpm()",
    ),
    (
        "m = from(Service.latency).longAvg().«cpm»();",
        "cpm follows longAvg",
        "a metric has one function: define two metrics",
    ),
    (
        "m = from(Service.latency).longAvg()«.filter(status == true)»;",
        "this filter follows longAvg",
        "filters stand before the function",
    ),
    (
        'm = from(Service.latency)«.decorator("X")».longAvg();',
        "this decorator stands before longAvg",
        "decorators follow the function",
    ),
    (
        "m = from(«Service.name»).sum();",
        'sum needs a long, and "Service.name" is a string',
        "cast it: from((str->long)Service.name)",
    ),
    (
        'm = from(«Service.tag["x"]»).doubleAvg();',
        'doubleAvg needs a double, and Service.tag["x"] is a string',
        'cast it: from((str->double)Service.tag["x"])',
    ),
    (
        'm = from(«(str->double)Service.tag["x"]»).longAvg();',
        'longAvg needs a long, and Service.tag["x"] is a double',
        "use doubleAvg",
    ),
    (
        "m = from(«Service.status»).sum();",
        'sum needs a long, and "Service.status" is a bool',
        f"{LONGS}, or count() for the number of rows",
    ),
    ("m = from(«Service.*»).longAvg();", "longAvg needs a value, and Service.* has none", LONGS),
    (
        "m = from(Service.*).«percent»();",
        "percent takes 1 argument, not 0",
        "write percent(status == true)",
    ),
    ("m = from(Service.*).«cpm»(10);", "cpm takes no arguments, not 1", "write cpm()"),
    (
        "m = from(Service.*).«rate»(status == true);",
        "rate takes 2 arguments, not 1",
        "write rate(status == false, status == true)",
    ),
    (
        "m = from(Service.*).percent(«5»);",
        "argument 1 of percent must be a condition",
        "write percent(status == true)",
    ),
    (
        'm = from(Service.latency).percentile2(«"10"»);',
        "argument 1 of percentile2 must be a number",
        "write percentile2(10)",
    ),
    (
        "m = from(Service.latency).apdex(name, «status == true»);",
        "argument 2 of apdex must be an attribute",
        "write apdex(name, status)",
    ),
    (
        "m = from(Service.latency).apdex(name, «name»);",
        'argument 2 of apdex must be a bool, and "name" is a string',
        "choose one of: status",
    ),
    (
        "m = from(Service.*).labelCount(«tags»);",
        NO_LABEL,
        LABELS,
    ),
    (
        "m = from(Service.latency).histogram(«0», 20);",
        "0 cannot be a step or a number of groups",
        "both are whole numbers above 0",
    ),
    (
        "m = from(Service.latency).histogram(«0.5», 20);",
        "0.5 cannot be a step or a number of groups",
        "both are whole numbers above 0",
    ),
    (
        "m = from(Service.latency).histogram(100, «-1»);",
        "-1 cannot be a step or a number of groups",
        "both are whole numbers above 0",
    ),
    (
        "m = from(Service.latency).histogram(100, «100000»);",
        "100000 groups are too many",
        "use at most 1000, of a larger step",
    ),
    (
        "m = from(Service.latency).histogram(«9000000000000000000», 1000);",
        "a step of 9000000000000000000 is too large",
        "use a smaller one",
    ),
]
STATEMENTS = [
    (
        "m = from(Service.*).cpm();\nn = from(Service.*).cpm();\n«m» = from(Service.*).count();",
        'metric "m" is defined already',
        "the first is in r.oal:1; rename this one",
    ),
    (
        "«größe» = from(Service.*).cpm();",
        '"größe" cannot be the name of a metric',
        "use the letters a to z, digits and _",
    ),
    (
        f"«{'m' * 201}» = from(Service.*).cpm();",
        f'the name "{"m" * 59}…" is too long',
        "use at most 200 characters",
    ),
    (
        "«filter» = from(Service.*).cpm();",
        'expected a name or "disable", found "filter"',
        '"filter" is a word of the language; choose another name',
    ),
    ("service«-»cpm = from(Service.*).cpm();", 'unexpected character "-"', NAMES),
    (
        "«5»xx = from(Service.*).cpm();",
        'expected a name or "disable", found "5"',
        "a name begins with a letter or _",
    ),
    (
        "m = from(Service.*).cpm()«»\nn = from(Service.*).cpm();",
        'missing ";"',
        "every rule ends with a semicolon",
    ),
    (
        "m = from(Service.*).cpm()«» disable(m); n = from(Service.*).cpm();",
        'missing ";"',
        "every rule ends with a semicolon",
    ),
    (
        "m = from(Service.*).cpm()«» n = from(Service.*).cpm();",
        'missing ";"',
        "every rule ends with a semicolon",
    ),
    ("m = from(Service.*).cpm()«»\n\n", 'missing ";"', "every rule ends with a semicolon"),
    ("m = from(Service.*«.»cpm();", 'expected ")", found "."', SHAPE),
    ("m = from(Service.*).percent(status == true«;»", 'expected ")" or ",", found ";"', SHAPE),
    ("m = from(Service.*).cpm(«;»", 'expected a value or ")", found ";"', SHAPE),
    (
        "m = from(Service.*).filter(«»",
        "the file ends within a rule: expected a name",
        "complete the rule, or remove it",
    ),
    (
        "m = from(Service.*).filter(status «=» true).cpm();",
        'expected an operator such as ==, found "="',
        "compare with ==",
    ),
    (
        "m = from(Service.*).filter(name «=» from).cpm();",
        'expected an operator such as ==, found "="',
        "compare with ==",
    ),
    (
        "m «==» from(Service.*).cpm();",
        'expected "=", found "=="',
        "a metric is defined with a single =",
    ),
    (
        "m = «form»(Service.*).cpm();",
        'expected "from", found "form"',
        'did you mean "from"?',
    ),
    (
        "m = from(Service.*).filter(status == true «and» latency > 5).cpm();",
        'expected ")", found "and"',
        ONE_FILTER_EACH,
    ),
    (
        "m = from(Service.*).filter(latency > 5 «|»| status == true).cpm();",
        'unexpected character "|"',
        NO_OR,
    ),
    (
        "m = from(Service.*).filter(name == «'»x').cpm();",
        'unexpected character "\'"',
        "texts stand in double quotes",
    ),
    ("m = from(Service.*).filter(name ==«)».cpm();", 'expected a value, found ")"', SHAPE),
    (
        'm = from(Service.*).filter(name == «"x).cpm();»\nn = from(Service.*).cpm();',
        'unterminated text: its closing " is not on this line',
        'close it with "',
    ),
    (
        "m = from(Service.*).cpm();\n«/* and so on»\nn = from(Service.*).cpm();",
        "unterminated comment",
        "close it with */",
    ),
    (
        "«#» a comment\nm = from(Service.*).cpm();",
        'unexpected character "#"',
        "comments begin with //",
    ),
    (
        "m = from(Service.*).cpm();\ndisable(«mm»);",
        'there is no metric and no source "mm" to disable',
        'did you mean "m"?',
    ),
    (
        "m = from(Service.*).cpm();\ndisable(«nothing_like_it»);",
        'there is no metric and no source "nothing_like_it" to disable',
        "remove the statement",
    ),
    (
        'm = from(Service.*).cpm();\ndisable(«"m"»);',
        'expected a name, found "m"',
        "leave the quotes out",
    ),
    (
        "«»",
        "there are no rules in it",
        "write one, such as service_cpm = from(Service.*).cpm();",
    ),
    (
        "«/»/ only a comment\n",
        "there are no rules in it",
        "write one, such as service_cpm = from(Service.*).cpm();",
    ),
    ("m = «\0»", "this is not text: it has a NUL character", "name a text file in UTF-8"),
]


def marked(rule: str) -> tuple[str, int, int, int]:
    """Take the marks out of *rule*; return it with line, column and length of what they hold."""
    before, _, rest = rule.partition("«")
    offending, _, after = rest.partition("»")
    line = before.count("\n") + 1
    return before + offending + after, line, len(before) - before.rfind("\n"), len(offending) or 1


@pytest.mark.parametrize(
    ("rule", "message", "suggestion"), [*FROM, *CONDITIONS, *CALLS, *STATEMENTS]
)
def test_a_mistake_is_one_error_with_place_and_remedy(
    rule: str, message: str, suggestion: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exactly one error, where the mistake is; it says what is wrong and what to do."""
    monkeypatch.chdir(tmp_path)
    text, line, column, length = marked(rule)
    Path("r.oal").write_text(text, encoding="utf-8", newline="")
    (found,) = parse_files(["r.oal"]).diagnostics
    assert (found.file, found.line, found.column) == ("r.oal", line, column)
    assert (found.message, found.suggestion) == (message, suggestion)
    assert found.length == length
    assert found.source == text.split("\n")[line - 1]


def test_there_are_well_over_25_kinds_of_mistakes() -> None:
    """The list above is not quietly emptied."""
    assert len({message for _, message, _ in [*FROM, *CONDITIONS, *CALLS, *STATEMENTS]}) > 70


def test_all_mistakes_of_a_text_are_reported() -> None:
    """After an error the next rule is read, and one rule may have several errors."""
    text = """
        a = from(Servise.*).cpm();
        b = from(Service.*).filter(staus == true).longAv();
        c = from(Service.*).cpm(
        d = from(Service.*).cpm();
        e = from(Service.name).filter(type == RequestType.HTPP).sum(1)
        f = from(Service.*).cpm();
    """
    rules = parse_rules(text)
    assert [metric.name for metric in rules.metrics] == ["d", "f"]
    assert [(found.line, found.message) for found in rules.diagnostics] == [
        (2, 'unknown source "Servise"'),
        (3, 'unknown attribute "staus" of Service'),
        (3, 'unknown function "longAv"'),
        (5, 'expected a value or ")", found "d"'),
        (6, 'unknown constant "HTPP" of RequestType'),
        (6, "sum takes no arguments, not 1"),
        (6, 'missing ";"'),
    ]


def test_both_sides_of_a_condition_are_checked() -> None:
    """An error on the left does not hide one on the right, whether the source is known or not."""
    rule = 'm = from({}.*).filter(foo in (RequestType.HTPP, 1e999, "\\x")).cpm();'
    known = parse_rules(rule.format("Service")).diagnostics
    assert [found.column for found in known] == [28, 48, 54, 62]
    unknown = parse_rules(rule.format("Servise")).diagnostics
    assert [found.column for found in unknown] == [10, 48, 54, 62]


def test_a_metric_whose_rule_has_an_error_can_be_disabled() -> None:
    """One mistake is one error: that the metric is missing for it is no second one."""
    for rule in ("a = from(Servise.*).cpm();", "a = from(Service.*;"):
        assert len(parse_rules(rule + "disable(a);").diagnostics) == 1


def test_both_definitions_of_a_name_are_checked() -> None:
    """A metric that is defined twice and wrong in both places is three mistakes."""
    text = "a = from(Servise.*).cpm();\na = from(Servise.*).cpm();"
    assert [found.line for found in parse_rules(text).diagnostics] == [1, 2, 2]


def shown(text: str) -> list[str]:
    """Return the lines that tell about the one error of *text*."""
    (found,) = parse_rules(text, file="my.oal").diagnostics
    return str(found).split("\n")


def test_an_error_is_shown_with_the_line_and_a_caret_under_the_mistake() -> None:
    """File, line and column in the form that editors know; then the line, the mark, the remedy."""
    assert shown("\nm = from(Servise.*).cpm();") == [
        'my.oal:2:10: error: unknown source "Servise"',
        "    m = from(Servise.*).cpm();",
        "             ^^^^^^^",
        '    did you mean "Service"?',
    ]


def test_the_caret_is_under_the_mistake_whatever_stands_before() -> None:
    """Tabs take one cell, wide characters two, combining ones none; the rest is made visible."""
    lines = shown('\tm = from(Service.*).filter(name in ("日本", "e\u0301", "\x1b", 5)).cpm();')
    assert lines[1] == '     m = from(Service.*).filter(name in ("日本", "e\u0301", "�", 5)).cpm();'
    assert lines[2].index("^") == 4 + 1 + len(
        'm = from(Service.*).filter(name in ("____", "e", "_", '
    )


@pytest.mark.parametrize("before", [0, 1, 59, 60, 61, 500])
@pytest.mark.parametrize("after", [0, 1, 59, 500])
def test_a_long_line_is_shown_around_the_mistake(before: int, after: int) -> None:
    """However long the line, what is shown of it is short and has the mistake marked."""
    _, line, carets, _ = shown(
        " " * before + "/**/m = from(Servise.*).cpm();" + "/" * 2 + "x" * after
    )
    assert len(line) <= 4 + 120 + 2
    at = carets.index("^")
    assert line[at : at + 7] == "Servise"
    assert carets.count("^") == 7


def test_a_mistake_that_spans_lines_is_marked_up_to_the_end_of_its_first() -> None:
    """A mark never runs past the line that it is under."""
    lines = shown("m = from(Service.latency).longAvg()\n.filter(status ==\n  true);")
    assert lines[1:3] == ["    .filter(status ==", "    ^^^^^^^^^^^^^^^^^"]


def test_what_is_quoted_is_short_and_visible() -> None:
    """A message does not repeat a page of text, nor what would disturb the terminal."""
    (found,) = parse_rules(f"m = from({'x' * 5000}.*).cpm();").diagnostics
    assert len(found.message) < 100
    (found,) = parse_rules('m = from(Service.*).filter(name == "\x1b[2J" "x").cpm();').diagnostics
    assert "\x1b" not in str(found)


def test_an_error_about_a_whole_file_has_no_line() -> None:
    """Such an error names the file only."""
    assert str(Diagnostic("my.oal", 0, 0, "gone", "bring it back")) == (
        "my.oal: error: gone\n    bring it back"
    )
