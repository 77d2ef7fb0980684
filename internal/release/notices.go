package main

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// notices are the licences of what a program was linked with, as they ask for: of
// Go itself, and of each module. A module without one is an error.
func (b *builder) notices(program string) ([]byte, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	goroot, err := b.run(b.src, nil, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	if err := addNotice(&text, "Go, "+info.GoVersion, strings.TrimSpace(string(goroot))); err != nil {
		return nil, err
	}
	for _, m := range info.Deps {
		dir, err := b.run(b.src, nil, "go", "list", "-m", "-f", "{{.Dir}}", m.Path)
		if err != nil {
			return nil, err
		}
		if err := addNotice(&text, m.Path+" "+m.Version, strings.TrimSpace(string(dir))); err != nil {
			return nil, err
		}
	}
	return text.Bytes(), nil
}

var licenceName = regexp.MustCompile(`^(?i)(LICEN[CS]E|COPYING|NOTICE|PATENTS|SQLITE-LICENSE)`)

func addNotice(text *bytes.Buffer, what, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	found := false
	for _, e := range entries {
		if e.IsDir() || !licenceName.MatchString(e.Name()) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		found = true
		fmt.Fprintf(text, "==== %s: %s\n\n%s\n\n", what, e.Name(), bytes.TrimSpace(data))
	}
	if !found {
		return fmt.Errorf("%s: no licence in %s", what, dir)
	}
	return nil
}
