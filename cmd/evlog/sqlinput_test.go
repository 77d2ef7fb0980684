package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSQLInput(t *testing.T) {
	for _, tc := range []struct {
		name, input string
		want        []sqlStatement
	}{
		{"one", "select 1;", []sqlStatement{{"select 1;", 1}}},
		{"without semicolon", "select 1\n", []sqlStatement{{"select 1", 1}}},
		{"two on a line", "select 1; select 2;", []sqlStatement{{"select 1;", 1}, {" select 2;", 1}}},
		{"two lines", "\nselect\n1;\n", []sqlStatement{{"select\n1;", 2}}},
		{"one begins where another ends", "select 1; select\n2;", []sqlStatement{{"select 1;", 1}, {" select\n2;", 1}}},
		{"semicolons in quotes", `select ';', "a;", [b;], ` + "`c;`;", []sqlStatement{{`select ';', "a;", [b;], ` + "`c;`;", 1}}},
		{"doubled quotes", "select 'a'';b';", []sqlStatement{{"select 'a'';b';", 1}}},
		{"a quote over lines", "select 'a;\n;b';", []sqlStatement{{"select 'a;\n;b';", 1}}},
		{"comments", "-- a;\nselect 1 -- b;\n, 2 /* c; */;", []sqlStatement{{"select 1 -- b;\n, 2 /* c; */;", 2}}},
		{"a comment over lines before", "/* a\n b */\nselect 1;", []sqlStatement{{"select 1;", 3}}},
		{"a comment that ends in the statement's line", "/* a\n b */ select 1;", []sqlStatement{{"/* a\n b */ select 1;", 2}}},
		{"a quote in a comment", "-- it's\nselect 1; /* it's */ select 2;", []sqlStatement{{"select 1;", 2}, {" /* it's */ select 2;", 2}}},
		{"a star ends no comment before it began", "select 1 /*/ ; */;", []sqlStatement{{"select 1 /*/ ; */;", 1}}},
		{"a minus and a slash", "select 1 - -1 / 2;", []sqlStatement{{"select 1 - -1 / 2;", 1}}},
		{"nothing", " ;; \n -- a\n/* b */ ;", nil},
		{"a dot command", " .mode csv \nselect 1;", []sqlStatement{{".mode csv", 1}, {"select 1;", 2}}},
		{"a dot within", "select\n.5;", []sqlStatement{{"select\n.5;", 1}}},
		{"a dot in a comment", "/*\n.quit\n*/ select 1;", []sqlStatement{{"/*\n.quit\n*/ select 1;", 3}}},
		{"unfinished", "select 1; select 'a", []sqlStatement{{"select 1;", 1}, {"select 'a", 1}}},
		{"returns", "select 1;\r\n.mode csv\r\n", []sqlStatement{{"select 1;", 1}, {".mode csv", 2}}},
		{"a line without end", "select 1;\nselect 2", []sqlStatement{{"select 1;", 1}, {"select 2", 2}}},
		{"longer than a buffer", "select '" + strings.Repeat("x", 200_000) + "';", []sqlStatement{{"select '" + strings.Repeat("x", 200_000) + "';", 1}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []sqlStatement
			require.NoError(t, newSQLInput().read(strings.NewReader(tc.input), func(st sqlStatement) error {
				got = append(got, st)
				return nil
			}))
			require.Equal(t, tc.want, got)
		})
	}
}

func TestSQLInput_TooLong(t *testing.T) {
	never := func(sqlStatement) error { return errors.New("called") }
	long := strings.Repeat("x", maxStatementBytes+1<<20)
	require.ErrorContains(t, newSQLInput().read(strings.NewReader("\n'"+long), never), "line 2: it has more than")
	lines := strings.Repeat("xxxxxxx\n", maxStatementBytes/8+1)
	require.ErrorContains(t, newSQLInput().read(strings.NewReader(lines), never), "a statement has more than")
}

func TestWidestThatFits(t *testing.T) {
	require.Equal(t, 8, widestThatFits([]int{1, 2}, 80), "nothing to cut")
	require.Equal(t, 38, widestThatFits([]int{2, 500, 400}, 78))
	require.Equal(t, 68, widestThatFits([]int{10, 500}, 78))
	require.Equal(t, 8, widestThatFits([]int{100, 100, 100}, 10), "no room, and still something to read")
}

func TestCut(t *testing.T) {
	require.Equal(t, "abc…", cut("abcdefg", 4))
	require.Equal(t, "日…", cut("日本語", 4), "two columns each")
	require.Equal(t, "e\u0301e\u0301…", cut("e\u0301e\u0301e\u0301e\u0301", 3), "an accent belongs to its letter")
	require.Equal(t, 6, textWidth("日本語"))
}
