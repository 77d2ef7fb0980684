package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"github.com/evlog-go/evlog/evlog"
)

// form is one application's form of event: where the example takes such events
// from, and what a timeline shows of one.
type form struct {
	stream string
	show   func(value []byte) (who, what string, err error)
}

// forms by schema id. Fields have names, so that a later version of an
// application may add some; what means something else gets a new id.
var forms = map[uint16]form{
	1: {"agent_openhands", showOpenHands},
	2: {"agent_swe", showSWE},
	3: {"agent_airline", showAirline},
}

// line is one event of a timeline.
func line(rec evlog.Record) string {
	who, what := "?", fmt.Sprintf("schema %d, %d bytes", rec.Schema, len(rec.Value))
	if f, ok := forms[rec.Schema]; ok {
		var err error
		if who, what, err = f.show(rec.Value); err != nil {
			who, what = "?", err.Error()
		}
	}
	return fmt.Sprintf("%s  #%-4d %-24s %-11s %s", rec.Time.Format("2006-01-02 15:04:05.000"),
		rec.Offset, cutLeft(string(rec.Key), 24), cut(who, 11), cut(what, 72))
}

func showOpenHands(value []byte) (who, what string, err error) {
	var e struct {
		Source, Action, Observation, Message string
		Args                                 struct{ Command, Path, Thought, Code string }
	}
	if err := json.Unmarshal(value, &e); err != nil {
		return "", "", err
	}
	kind := e.Action
	if kind == "" {
		kind = "got " + e.Observation
	}
	for _, detail := range []string{e.Message, e.Args.Command + " " + e.Args.Path, e.Args.Code, e.Args.Thought} {
		if strings.TrimSpace(detail) != "" {
			return e.Source, kind + ": " + detail, nil
		}
	}
	return e.Source, kind, nil
}

func showSWE(value []byte) (who, what string, err error) {
	var e struct{ Action string }
	err = json.Unmarshal(value, &e)
	return "agent", e.Action, err
}

func showAirline(value []byte) (who, what string, err error) {
	var e struct {
		Role, Content string
		ToolCalls     []struct {
			Function struct{ Name, Arguments string }
		} `json:"tool_calls"`
		End    bool
		Reward float64
	}
	if err := json.Unmarshal(value, &e); err != nil {
		return "", "", err
	}
	switch {
	case e.End:
		return "benchmark", fmt.Sprintf("end of the run, reward %g", e.Reward), nil
	case len(e.ToolCalls) > 0:
		call := e.ToolCalls[0].Function
		return e.Role, "calls " + call.Name + " " + call.Arguments, nil
	}
	return e.Role, e.Content, nil
}

// cut makes text fit a line: at most n characters, no line breaks, and nothing
// that a terminal would act on, since others wrote it.
func cut(text string, n int) string {
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r)
	}), " ")
	if r := []rune(text); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return text
}

// cutLeft keeps the end of a text, where the long names of runs differ.
func cutLeft(text string, n int) string {
	text = cut(text, len(text)+1)
	if r := []rune(text); len(r) > n {
		return "…" + string(r[len(r)-n+1:])
	}
	return text
}
