package route

import (
	"encoding"
	"encoding/json"
	"path"
	"reflect"
	"strings"
	"time"
)

// object is a JSON object of the document.
type object = map[string]any

// JSONForm is implemented by types with a MarshalJSON that writes another type's JSON.
type JSONForm interface{ JSONForm() any }

// schemas infers JSON Schemas (2020-12) from Go types, as encoding/json writes them. A struct with a name is described
// once, in defs, and referred to. Lists and maps that are nil are null.
type schemas struct {
	defs  object
	names map[string]reflect.Type
}

func newSchemas() *schemas { return &schemas{object{}, map[string]reflect.Type{}} }

var (
	textType      = reflect.TypeFor[encoding.TextMarshaler]()
	marshalerType = reflect.TypeFor[json.Marshaler]()
)

func (s *schemas) of(t reflect.Type) object {
	if t.Kind() == reflect.Pointer {
		return nullable(s.of(t.Elem()))
	}
	if form, ok := reflect.Zero(t).Interface().(JSONForm); ok {
		return s.of(reflect.TypeOf(form.JSONForm()))
	}
	switch {
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[time.Duration]():
		return object{"type": "integer", "description": "nanoseconds"}
	case t.Implements(textType):
		return object{"type": "string"}
	case t.Implements(marshalerType):
		return object{} // anything
	}
	switch t.Kind() {
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return object{"type": "integer"}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return object{"type": "integer", "minimum": 0}
	case reflect.Float32, reflect.Float64:
		return object{"type": "number"}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return object{"type": []string{"string", "null"}, "contentEncoding": "base64"}
		}
		return object{"type": []string{"array", "null"}, "items": s.of(t.Elem())}
	case reflect.Array:
		return object{"type": "array", "items": s.of(t.Elem()), "minItems": t.Len(), "maxItems": t.Len()}
	case reflect.Map:
		return object{"type": []string{"object", "null"}, "additionalProperties": s.of(t.Elem())}
	case reflect.Struct:
		return s.structure(t)
	}
	return object{}
}

func nullable(schema object) object {
	switch kind := schema["type"].(type) {
	case string:
		schema["type"] = []string{kind, "null"}
	case nil:
		if len(schema) > 0 {
			return object{"anyOf": []object{schema, {"type": "null"}}}
		}
	}
	return schema
}

func (s *schemas) structure(t reflect.Type) object {
	if t.Name() == "" {
		return s.properties(t)
	}
	name := s.name(t)
	if s.defs[name] == nil {
		s.defs[name] = object{} // for types that contain themselves
		s.defs[name] = s.properties(t)
	}
	return object{"$ref": "#/components/schemas/" + name}
}

// name is a type's name with as much of its package's path as distinguishes it from others.
func (s *schemas) name(t reflect.Type) string {
	dir, name := t.PkgPath(), t.Name()
	for dir != "." && dir != "/" {
		name = path.Base(dir) + "." + name
		dir = path.Dir(dir)
		if named := s.names[name]; named == nil || named == t {
			break
		}
	}
	s.names[name] = t
	return name
}

func (s *schemas) properties(t reflect.Type) object {
	properties, required := object{}, []string{}
	s.collect(t, properties, &required)
	out := object{"type": "object", "properties": properties}
	if len(required) > 0 {
		out["required"] = required
	}
	return out
}

// collect adds the fields of a struct, and of those embedded in it.
func (s *schemas) collect(t reflect.Type, properties object, required *[]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Tag.Get("json") == "-":
			continue
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct && !f.Type.Implements(textType):
			s.collect(f.Type, properties, required)
			continue
		case !f.IsExported():
			continue
		case name == "":
			name = f.Name
		}
		schema := s.of(f.Type)
		if doc := f.Tag.Get("doc"); doc != "" {
			schema["description"] = doc
		}
		properties[name] = schema
		if !strings.Contains(options, "omit") {
			*required = append(*required, name)
		}
	}
}
