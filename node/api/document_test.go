package api

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/starling-network/starling/node/api/route"
)

// load parses and validates a document.
func load(t *testing.T, b []byte) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(b)
	if err == nil {
		err = doc.Validate(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestDocument(t *testing.T) {
	t.Parallel()
	b, err := Document()
	if err != nil {
		t.Fatal(err)
	}
	doc := load(t, b)
	if !doc.IsOpenAPI31OrLater() {
		t.Errorf("OpenAPI %s", doc.OpenAPI)
	}
	described := 0
	for _, item := range doc.Paths.Map() {
		described += len(item.Operations())
	}
	if described != len(Routes()) {
		t.Errorf("%d operations, want %d", described, len(Routes()))
	}
	ids := map[string]string{}
	for _, o := range Routes() {
		op := doc.Paths.Value(o.Path()).GetOperation(o.Method())
		if op == nil || op.Responses.Status(o.Status) == nil {
			t.Errorf("%s: no operation with status %d", o.Pattern, o.Status)
			continue
		}
		if other := ids[op.OperationID]; other != "" {
			t.Errorf("%s and %s: both are operation %s", other, o.Pattern, op.OperationID)
		}
		ids[op.OperationID] = o.Pattern
		for _, name := range pathParameters(o) {
			if p := op.Parameters.GetByInAndName("path", name); p == nil {
				t.Errorf("%s: path parameter %s: not described", o.Pattern, name)
			}
		}
		if want := map[route.Access]int{route.Owner: 1, route.Keys: 2}[o.Access]; op.Security == nil || len(*op.Security) != want {
			t.Errorf("%s: security: got %v, want %d ways", o.Pattern, op.Security, want)
		}
	}
}

func pathParameters(o route.Operation) (names []string) {
	for _, part := range strings.Split(o.Path(), "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			names = append(names, strings.TrimSuffix(name, "}"))
		}
	}
	return names
}

func TestRoutesHaveSummaries(t *testing.T) {
	t.Parallel()
	for _, o := range Routes() {
		s := o.Summary
		if s == "" || s[0] < 'A' || s[0] > 'Z' || strings.HasSuffix(s, ".") || len(s) > 120 {
			t.Errorf("%s: summary: got %q, want a sentence of at most 120 bytes without its full stop", o.Pattern, s)
		}
	}
}

// TestAnswersFitTheirSchemas holds answers with all fields, and with none, against a document that allows no other fields.
func TestAnswersFitTheirSchemas(t *testing.T) {
	t.Parallel()
	b, err := Document()
	if err != nil {
		t.Fatal(err)
	}
	var raw any
	if err := json.Unmarshal(b, &raw); err != nil {
		t.Fatal(err)
	}
	closed(raw)
	if b, err = json.Marshal(raw); err != nil {
		t.Fatal(err)
	}
	doc := load(t, b)
	for _, o := range Routes() {
		if o.Answer() == nil || o.Answer() == reflect.TypeFor[None]() {
			continue
		}
		op := doc.Paths.Value(o.Path()).GetOperation(o.Method())
		schema := op.Responses.Value(strconv.Itoa(o.Status)).Value.Content["application/json"].Schema.Value
		empty, full := reflect.New(o.Answer()), reflect.New(o.Answer())
		fill(full.Elem(), 0)
		for name, v := range map[string]reflect.Value{"empty": empty, "full": full} {
			b, err := json.Marshal(v.Interface())
			var x any
			if err == nil {
				err = json.Unmarshal(b, &x)
			}
			if err == nil {
				err = schema.VisitJSON(x, openapi3.EnableJSONSchema2020())
			}
			if err != nil {
				t.Errorf("%s: %s: %v", o.Pattern, name, err)
			}
		}
	}
}

// closed lets objects have no fields but those described.
func closed(v any) {
	switch v := v.(type) {
	case map[string]any:
		if v["type"] == "object" && v["properties"] != nil {
			v["additionalProperties"] = false
		}
		for _, x := range v {
			closed(x)
		}
	case []any:
		for _, x := range v {
			closed(x)
		}
	}
}

// fill gives v's fields values, where they can be written as JSON.
func fill(v reflect.Value, depth int) {
	if depth > 12 || !v.CanSet() {
		return
	}
	defer func(old reflect.Value) {
		if _, err := json.Marshal(v.Interface()); err != nil {
			v.Set(old)
		}
	}(reflect.Zero(v.Type()))
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth+1)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), depth+1)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(1), depth+1)
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), depth+1)
		}
	case reflect.Map:
		key, x := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, depth+1)
		fill(x, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, x)
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(3)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(3)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(0.5)
	}
}
