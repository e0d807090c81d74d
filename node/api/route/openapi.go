package route

import (
	"cmp"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Document returns the OpenAPI 3.1 document of routes.
func Document(title, version, description string, routes []Operation) ([]byte, error) {
	d := &document{schemas: newSchemas(), paths: map[string]object{}}
	for _, o := range routes {
		d.add(o)
	}
	d.schemas.defs["Error"] = object{
		"type": "object", "required": []string{"error"},
		"properties": object{"error": d.schemas.of(reflect.TypeFor[Error]())},
	}
	token := func(text string) object { return object{"type": "http", "scheme": "bearer", "description": text} }
	return json.Marshal(object{
		"openapi": "3.1.0",
		"info":    object{"title": title, "version": version, "description": description},
		"paths":   d.paths,
		"components": object{
			"schemas": d.schemas.defs,
			"securitySchemes": object{
				"peer": token("The token in api.json in the peer's home directory."),
				"key":  token("The token of an API key. It reaches only that key's own jobs."),
			},
		},
	})
}

type document struct {
	schemas *schemas
	paths   map[string]object
}

func (d *document) add(o Operation) {
	op := object{"summary": o.Summary, "operationId": o.id(), "tags": []string{o.Group()}, "security": o.security()}
	parameters := []object{}
	for _, f := range fieldsOf(o.request) {
		if f.in == inBody {
			op["requestBody"] = object{"required": true, "content": d.content(f)}
			continue
		}
		schema := d.schemas.of(f.typ)
		if f.typ.Kind() == reflect.Int {
			schema["minimum"] = 0
		}
		p := object{"name": f.name, "in": f.in, "schema": schema}
		if f.doc != "" {
			p["description"] = f.doc
		}
		if f.in == inPath {
			p["required"] = true
		}
		parameters = append(parameters, p)
	}
	if len(parameters) > 0 {
		op["parameters"] = parameters
	}
	success := object{"description": http.StatusText(o.Status)}
	switch {
	case o.content != "":
		success["content"] = object{o.content: object{}}
	case o.answer != nil && o.Status != http.StatusNoContent:
		success["content"] = object{jsonType: object{"schema": d.schemas.of(o.answer)}}
	}
	if o.Status == http.StatusCreated {
		success["headers"] = object{"Location": object{"schema": object{"type": "string"}}}
	}
	failure := object{jsonType: object{"schema": object{"$ref": "#/components/schemas/Error"}}}
	responses := object{
		strconv.Itoa(o.Status): success,
		"default":              object{"description": "Error", "content": failure},
	}
	if o.Failing {
		responses[strconv.Itoa(http.StatusServiceUnavailable)] = object{
			"description": http.StatusText(http.StatusServiceUnavailable), "content": success["content"],
		}
	}
	op["responses"] = responses
	if d.paths[o.Path()] == nil {
		d.paths[o.Path()] = object{}
	}
	d.paths[o.Path()][strings.ToLower(o.Method())] = op
}

// content describes a request's body in each of its content types.
func (d *document) content(f field) object {
	if f.typ.Kind() == reflect.Interface {
		return object{f.name: object{}}
	}
	forms := map[string]reflect.Type{f.name: f.typ}
	if own, ok := reflect.New(f.typ).Interface().(Body); ok {
		forms = own.Forms()
	}
	out := object{}
	for name, t := range forms {
		out[name] = object{"schema": d.schemas.of(t)}
	}
	return out
}

func (o Operation) security() []object {
	peer, key := object{"peer": []string{}}, object{"key": []string{}}
	switch o.Access {
	case Owner:
		return []object{peer}
	case Keys:
		return []object{peer, key}
	}
	return []object{}
}

// Group returns the route's group: the first part of its path after the version.
func (o Operation) Group() string {
	parts := o.parts()
	return parts[0]
}

// id is the route's name for generated clients: getJobsIdEvents.
func (o Operation) id() string {
	id := strings.ToLower(o.Method())
	for _, part := range o.parts() {
		part = strings.Trim(part, "{}")
		id += strings.ToUpper(part[:1]) + strings.ReplaceAll(part[1:], ".", "")
	}
	return id
}

func (o Operation) parts() []string {
	return strings.Split(strings.TrimPrefix(strings.TrimPrefix(o.Path(), "/"), "v1/"), "/")
}

// Parameters lists the names of the query's parameters.
func (o Operation) Parameters() (names []string) {
	for _, f := range fieldsOf(o.request) {
		if f.in == inQuery {
			names = append(names, f.name)
		}
	}
	return names
}

// Sorted returns operations by path and method.
func Sorted(routes []Operation) []Operation {
	return slices.SortedFunc(slices.Values(routes), func(a, b Operation) int {
		return cmp.Or(strings.Compare(a.Path(), b.Path()), strings.Compare(a.Method(), b.Method()))
	})
}

// Operations describes bound routes.
func Operations(routes []Bound) (out []Operation) {
	for _, b := range routes {
		out = append(out, b.Operation)
	}
	return out
}
