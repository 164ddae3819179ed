"""An allow-list for untrusted SQL queries, applied to the parsed tree that DuckDB serializes as JSON.

Nodes, functions, types and tables that are not listed are rejected. A function of a later DuckDB version is rejected
until it has been reviewed.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from memory_pipeline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

_CLASSES = frozenset(
    "BETWEEN CASE CAST COLLATE COLUMN_REF COMPARISON CONJUNCTION CONSTANT FUNCTION LAMBDA LAMBDA_REF OPERATOR "
    "POSITIONAL_REFERENCE STAR SUBQUERY TYPE WINDOW".split()
)
#: Nodes of a query that are not expressions.
_NODES = frozenset(
    "SELECT_NODE SET_OPERATION_NODE RECURSIVE_CTE_NODE CTE_NODE ORDER_MODIFIER LIMIT_MODIFIER LIMIT_PERCENT_MODIFIER "
    "DISTINCT_MODIFIER ORDER_DEFAULT ASCENDING DESCENDING BASE_TABLE SUBQUERY JOIN TABLE_FUNCTION EXPRESSION_LIST "
    "EMPTY CTE".split()
)
_TABLE_FUNCTIONS = frozenset("range generate_series unnest".split())
_TYPES = frozenset(
    "bigint bit bitstring blob bool boolean bpchar bytea binary char date datetime dec decimal double float float4 "
    "float8 hugeint int int1 int128 int16 int2 int32 int4 int64 int8 integer integral interval json list array "
    "logical long map numeric oid real row short signed smallint string struct text time timestamp timestamp_ms "
    "timestamp_ns timestamp_s timestamp_us timestamptz timetz tinyint tuple ubigint uhugeint uint128 uint16 uint32 "
    "uint64 uint8 uinteger usmallint utinyint uuid varbinary varchar".split()
) | {"timestamp with time zone", "time with time zone"}
#: Functions that depend only on their arguments. Excluded on purpose: the clock and random numbers (a result depends
#: only on the tables), settings, files, sequences, variables, and functions that take SQL or a function's name as text.
_FUNCTIONS = frozenset(
    # Operators, by their names in the tree.
    "!~~ !~~* % & * ** + - ->> / // < <= <@ <=> = != <> > >= @> ^ ^@ | || ~ ~~ ~~* ~~~ << >> && ! @ "
    "like_escape not_like_escape ilike_escape not_ilike_escape add subtract multiply divide mod "
    # Texts.
    "ascii bar bit_length char_length character_length chr concat concat_ws contains damerau_levenshtein editdist3 "
    "ends_with format format_bytes formatreadabledecimalsize formatreadablesize hamming instr jaccard jaro_similarity "
    "jaro_winkler_similarity lcase left left_grapheme len length length_grapheme levenshtein lower lpad ltrim md5 "
    "mismatches nfc_normalize octet_length ord overlay position prefix printf regexp_escape regexp_extract "
    "regexp_extract_all regexp_full_match regexp_matches regexp_replace regexp_split_to_array regexp_split_to_table "
    "repeat replace reverse right right_grapheme rpad rtrim sha1 sha256 split split_part starts_with str_split "
    "str_split_regex string_split string_split_regex string_to_array strip_accents strlen strpos substr substring "
    "substring_grapheme suffix translate trim ucase unicode upper base64 from_base64 to_base64 hex unhex to_hex "
    "from_hex bin unbin to_binary from_binary encode decode url_encode url_decode "
    # Numbers.
    "abs acos acosh asin asinh atan atan2 atanh bit_count cbrt ceil ceiling cos cosh cot degrees even exp factorial "
    "fdiv floor fmod gamma gcd greatest greatest_common_divisor hash isfinite isinf isnan lcm least "
    "least_common_multiple lgamma ln log log10 log2 nextafter pi pow power radians round round_even roundbankers sign "
    "signbit sin sinh sqrt tan tanh to_base trunc xor "
    # Times. `age` is left out: with one argument it reads the clock.
    "century date_add date_diff date_part date_sub date_trunc datediff datepart datesub datetrunc day dayname "
    "dayofmonth dayofweek dayofyear days_in_month decade epoch epoch_ms epoch_ns epoch_us era hour isodow isoyear "
    "julian last_day make_date make_time make_timestamp make_timestamp_ms make_timestamp_ns make_timestamptz "
    "microsecond millennium millisecond minute month monthname nanosecond quarter second strftime strptime "
    "try_strptime time_bucket timezone timezone_hour timezone_minute to_centuries to_days to_decades to_hours "
    "to_microseconds to_millennia to_milliseconds to_minutes to_months to_quarters to_seconds to_timestamp to_weeks "
    "to_years week weekday weekofyear year yearweek normalized_interval "
    # Lists, structs and maps.
    "apply array_append array_apply array_cat array_concat array_contains array_cosine_distance "
    "array_cosine_similarity array_cross_product array_distance array_distinct array_dot_product array_extract "
    "array_filter array_has array_has_all array_has_any array_indexof array_inner_product array_intersect "
    "array_length array_negative_dot_product array_negative_inner_product array_pop_back array_pop_front "
    "array_position array_prepend array_push_back array_push_front array_reduce array_resize array_reverse "
    "array_reverse_sort array_select array_slice array_sort array_to_string array_transform array_unique array_value "
    "array_where array_zip cardinality element_at filter flatten generate_series generate_subscripts grade_up "
    "list_any_value list_append list_apply list_avg list_bit_and list_bit_or list_bit_xor list_bool_and list_bool_or "
    "list_cat list_concat list_contains list_cosine_distance list_cosine_similarity list_count list_distance "
    "list_distinct list_dot_product list_element list_entropy list_extract list_filter list_first list_grade_up "
    "list_has list_has_all list_has_any list_histogram list_indexof list_inner_product list_intersect list_last "
    "list_max list_median list_min list_mode list_negative_dot_product list_negative_inner_product list_pack "
    "list_position list_prepend list_product list_reduce list_resize list_reverse list_reverse_sort list_select "
    "list_slice list_sort list_stddev_pop list_stddev_samp list_string_agg list_sum list_transform list_unique "
    "list_value list_var_pop list_var_samp list_where list_zip map map_concat map_contains map_contains_entry "
    "map_contains_value map_entries map_extract map_extract_value map_from_entries map_keys map_values range reduce "
    "row struct_concat struct_contains struct_extract struct_extract_at struct_has struct_indexof struct_insert "
    "struct_keys struct_pack struct_position struct_update struct_values unnest "
    # JSON.
    "array_to_json from_json json json_array json_array_length json_contains json_exists json_extract "
    "json_extract_path json_extract_path_text json_extract_string json_group_array json_group_object json_keys "
    "json_merge_patch json_object json_pretty json_quote json_structure json_transform json_type json_valid "
    "json_value row_to_json to_json "
    # Choices and types.
    "coalesce constant_or_null if ifnull nullif typeof pg_typeof alias "
    # Aggregates and windows.
    "any_value approx_count_distinct approx_quantile approx_top_k arbitrary arg_max arg_max_null arg_min arg_min_null "
    "argmax argmin array_agg avg bit_and bit_or bit_xor bool_and bool_or corr count count_if count_star countif "
    "covar_pop covar_samp entropy favg first fsum geomean geometric_mean group_concat histogram kahan_sum kurtosis "
    "kurtosis_pop last list listagg mad max max_by mean median min min_by mode product quantile quantile_cont "
    "quantile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy sem "
    "skewness stddev stddev_pop stddev_samp string_agg sum sumkahan sum_no_overflow var_pop var_samp variance wavg "
    "weighted_avg row_number rank dense_rank rank_dense percent_rank cume_dist ntile lag lead first_value last_value "
    "nth_value fill".split()
)
_CLOCK = frozenset(
    "age ago get_current_time get_current_timestamp now today transaction_timestamp current_localtime "
    "current_localtimestamp current_date current_time current_timestamp localtime localtimestamp".split()
)
#: Functions without parentheses, which look like columns.
_LIKE_COLUMNS = frozenset(
    "current_date current_time current_timestamp localtime localtimestamp current_catalog current_database "
    "current_role current_schema current_user session_user user".split()
)
_CTE = re.compile(r"[^\W\d]\w{0,63}")


class SqlGuard:
    """Validates queries on a set of tables.

    `tables` has the columns by table name; `reserved` are the names of other existing views, in any schema. `functions`
    are further table functions.
    """

    def __init__(
        self, tables: Mapping[str, Collection[str]], reserved: Collection[str], functions: Collection[str] = ()
    ) -> None:
        self._table_functions = _TABLE_FUNCTIONS.union(functions)
        self._tables = frozenset(name.casefold() for name in tables)
        self._columns = frozenset(column.casefold() for columns in tables.values() for column in columns)
        self._reserved = frozenset(name.casefold() for name in reserved)
        self._table_names = ", ".join([*tables, *(f"{name}(…)" for name in functions)]) or "none"

    def judge_kinds(self, kinds: Sequence[str]) -> None:
        """Reject everything but a single SELECT, by the types of the statements.

        Raises:
            InputError: there is not exactly one statement, or it is not a SELECT.
        """
        if list(kinds) != ["SELECT"]:
            found = ", ".join(kinds[:5]) or "nothing"
            raise InputError(
                f"one SELECT is accepted, not {found}; write one SELECT over the tables: {self._table_names}"
            )

    def judge(self, serialized: str) -> None:
        """Reject a query with anything that is not on the allow-list.

        `serialized` is the result of DuckDB's ``json_serialize_sql``, with nothing skipped.

        Raises:
            InputError: the message says what to write instead.
        """
        try:
            tree = json.loads(serialized)
        except RecursionError:
            raise InputError("the query is nested too deeply; write it with fewer levels, or as CTEs") from None
        if tree.get("error") is not False:
            raise InputError(f"one plain SELECT is accepted: {tree.get('error_message')}")
        ctes: set[str] = set()
        read: list[str] = []
        nodes: list[Any] = [tree["statements"]]
        while nodes:
            node = nodes.pop()
            if isinstance(node, list):
                nodes.extend(node)
            elif isinstance(node, dict):
                if node.get("type") == "TABLE_FUNCTION" and "class" not in node:
                    self._judge_function(node["function"], self._table_functions)
                    node = {**node, "function": list(node["function"].values())}  # not a function of values, too
                nodes.extend(node.values())
                if "class" in node:
                    self._judge_expression(node)
                elif isinstance(node.get("type"), str):
                    self._judge_node(node, ctes, read)
        for name in ctes & self._reserved:
            # Outside of the CTE's scope the name would refer to the view.
            raise InputError(f"a CTE may not be called {name}; give it another name")
        for name in read:
            if name.casefold() not in self._tables | ctes:
                raise InputError(f"table {_quoted(name)} is unknown; accepted: {self._table_names}")

    def _judge_expression(self, node: Mapping[str, Any]) -> None:
        kind = node["class"]
        if kind not in _CLASSES:
            raise InputError(f"{_quoted(kind)} is not accepted in a query; write values, columns and functions")
        if kind in {"FUNCTION", "WINDOW"}:
            self._judge_function(node, _FUNCTIONS)
        elif kind == "TYPE":
            name = _name_alone(node, "type_name")
            if name.casefold() not in _TYPES:
                raise InputError(f"type {_quoted(name)} is not accepted; write one such as VARCHAR, BIGINT or DOUBLE")
        elif kind == "COLUMN_REF":
            self._judge_column([str(name).casefold() for name in node["column_names"]])

    def _judge_node(self, node: Mapping[str, Any], ctes: set[str], read: list[str]) -> None:
        form = node["type"]
        if form not in _NODES:
            raise InputError(f"{_quoted(form)} is not accepted; write a SELECT over the tables: {self._table_names}")
        if form == "BASE_TABLE":
            read.append(_name_alone(node, "table_name"))
            if node.get("at_clause"):
                raise InputError("AT is not accepted, since only the newest version of a table is read; leave out AT")
        names = [entry["key"] for entry in node.get("cte_map", {}).get("map", ())]
        for name in [*names, *([node["cte_name"]] if "cte_name" in node else [])]:
            if not _CTE.fullmatch(name):
                raise InputError(f"a CTE may not be called {_quoted(name)}; letters, digits and _ are accepted")
            ctes.add(name.casefold())

    def _judge_function(self, node: Mapping[str, Any], allowed: frozenset[str]) -> None:
        name = _name_alone(node, "function_name")
        if name.casefold() in _CLOCK:
            raise _clock_error(name)
        if name.casefold() not in allowed:
            kind = "table function" if allowed is self._table_functions else "function"
            raise InputError(
                f"{kind} {_quoted(name)} is not accepted; write a SELECT over the tables ({self._table_names}) with "
                "DuckDB's usual functions of texts, numbers, times, lists and JSON"
            )

    def _judge_column(self, names: list[str]) -> None:
        if len(names) == 1 and names[0] in _LIKE_COLUMNS - self._columns:
            if names[0] in _CLOCK:
                raise _clock_error(names[0])
            raise InputError(f"{names[0]} is not accepted; select columns of the tables")


def _name_alone(node: Mapping[str, Any], key: str) -> str:
    """Return an unqualified name. A schema or catalog could bypass the allow-list."""
    name = node.get(key)
    is_qualified = any(node.get(part) for part in ("schema", "schema_name", "catalog", "catalog_name"))
    if not isinstance(name, str) or is_qualified or node.get("qualified_name", {"path": [name]}) != {"path": [name]}:
        raise InputError(f"{_quoted(name)}: write the name of a table, function or type alone, without a dot before it")
    return name


def _clock_error(name: str) -> InputError:
    return InputError(
        f"{name} is not accepted: queries cannot read the clock; "
        "write the time, such as TIMESTAMPTZ '2024-01-15 08:00:00+00'"
    )


def _quoted(value: object) -> str:
    return ascii(str(value)[:80])
