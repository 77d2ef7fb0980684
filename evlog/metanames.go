package evlog

import (
	"fmt"
	"reflect"
	"strings"
)

// jsonNames returns the names that a struct's fields have in JSON, which are all
// in lower case.
func jsonNames(v any) (map[string]bool, error) {
	t := reflect.TypeOf(v)
	if t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("evlog: %v is no struct", t)
	}
	names := map[string]bool{}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names[name] = true
	}
	return names, nil
}
