package route

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"
)

const jsonType = "application/json"

// Body is implemented by pointers to bodies with an encoding of their own.
type Body interface {
	EncodeBody() (contentType string, b []byte, err error)
	DecodeBody(contentType string, b []byte) error
	// Forms returns the type of the JSON of each content type, for the documentation.
	Forms() map[string]reflect.Type
}

// The places of a field in a request.
const (
	inPath   = "path"
	inQuery  = "query"
	inHeader = "header"
	inBody   = "body"
)

// field is one field of a request type.
type field struct {
	in, name, doc string // name is the content type of a body
	index         int    // -1: the request itself is the body
	typ           reflect.Type
}

func (f field) value(req reflect.Value) reflect.Value {
	if f.index < 0 {
		return req
	}
	return req.Field(f.index)
}

// fieldsOf lists the fields of a request type.
func fieldsOf(t reflect.Type) (out []field) {
	if t.Kind() != reflect.Struct {
		return []field{{in: inBody, name: jsonType, index: -1, typ: t}}
	}
	for i := range t.NumField() {
		f := t.Field(i)
		for _, in := range []string{inPath, inQuery, inHeader, inBody} {
			if name, ok := f.Tag.Lookup(in); ok {
				out = append(out, field{in, name, f.Tag.Get("doc"), i, f.Type})
			}
		}
	}
	if len(out) == 0 && t.NumField() > 0 {
		out = []field{{in: inBody, name: jsonType, index: -1, typ: t}}
	}
	return out
}

// encoded is a request as it is sent.
type encoded struct {
	path   string
	body   io.Reader
	header http.Header
}

func encode(path string, req any) (encoded, error) {
	e := encoded{header: http.Header{}}
	query := url.Values{}
	v := reflect.New(reflect.TypeOf(req)).Elem()
	v.Set(reflect.ValueOf(req))
	for _, f := range fieldsOf(v.Type()) {
		x := f.value(v)
		if f.in == inBody {
			if err := e.setBody(x, f.name); err != nil {
				return e, err
			}
			continue
		}
		text, present, err := format(x)
		switch {
		case err != nil:
			return e, fmt.Errorf("%s: %w", f.name, err)
		case f.in == inPath:
			path = strings.Replace(path, "{"+f.name+"}", url.PathEscape(text), 1)
		case present && f.in == inQuery:
			query.Set(f.name, text)
		case present:
			e.header.Set(f.name, text)
		}
	}
	e.path = path
	if len(query) > 0 {
		e.path += "?" + query.Encode()
	}
	return e, nil
}

func (e *encoded) setBody(v reflect.Value, contentType string) error {
	if r, ok := v.Interface().(io.Reader); ok || v.Kind() == reflect.Interface {
		e.body = r
		e.header.Set("Content-Type", contentType)
		return nil
	}
	var b []byte
	var err error
	if own, ok := v.Addr().Interface().(Body); ok {
		contentType, b, err = own.EncodeBody()
	} else {
		b, err = json.Marshal(v.Interface())
	}
	e.body = bytes.NewReader(b)
	e.header.Set("Content-Type", contentType)
	return err
}

// format returns the text of a value in a URL or a header, and whether it is anything but zero.
func format(v reflect.Value) (text string, present bool, err error) {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return "", false, nil
		}
		text, _, err = format(v.Elem())
		return text, true, err
	}
	if m, ok := v.Interface().(encoding.TextMarshaler); ok {
		b, err := m.MarshalText()
		return string(b), !v.IsZero(), err
	}
	switch v.Kind() {
	case reflect.String:
		return v.String(), !v.IsZero(), nil
	case reflect.Bool:
		return "1", v.Bool(), nil
	case reflect.Int:
		return strconv.FormatInt(v.Int(), 10), !v.IsZero(), nil
	}
	return "", false, fmt.Errorf("type %s has no place in a URL", v.Type())
}

// decode reads a request. Its errors are answers.
func decode[Req any](w http.ResponseWriter, q *http.Request, limit int64) (req Req, err error) {
	v := reflect.ValueOf(&req).Elem()
	query := q.URL.Query()
	var body *field
	for _, f := range fieldsOf(v.Type()) {
		text, has := "", true
		switch f.in {
		case inPath:
			text = q.PathValue(f.name)
		case inQuery:
			text, has = query.Get(f.name), query.Has(f.name)
		case inHeader:
			text, has = q.Header.Get(f.name), len(q.Header.Values(f.name)) > 0
		case inBody:
			body = &f
			continue
		}
		if has {
			err = parse(f.value(v), f.name, text)
		}
		if err != nil {
			return req, err
		}
	}
	if body == nil {
		return req, nil
	}
	from, x := http.MaxBytesReader(w, q.Body, limit), body.value(v)
	if x.Kind() == reflect.Interface {
		x.Set(reflect.ValueOf(from))
		return req, nil
	}
	return req, readBody(x, from, q.Header.Get("Content-Type"))
}

func readBody(v reflect.Value, from io.Reader, contentType string) error {
	var big *http.MaxBytesError
	b, err := io.ReadAll(from)
	if errors.As(err, &big) {
		message := "reading the request: " + err.Error()
		return &Error{Status: http.StatusRequestEntityTooLarge, Code: "too_large", Message: message}
	}
	if err != nil {
		return malformed("reading the request: %v", err)
	}
	if own, ok := v.Addr().Interface().(Body); ok {
		return own.DecodeBody(contentType, b)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v.Addr().Interface()); err != nil {
		return malformed("reading the request: %v", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return malformed("reading the request: more than one JSON value")
	}
	return nil
}

// parse reads the text of a value in a URL or a header. Empty text is the zero value.
func parse(v reflect.Value, name, text string) error {
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if text == "" {
		return nil
	}
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		err := u.UnmarshalText([]byte(text))
		if _, isTime := u.(*time.Time); err != nil && isTime {
			return malformed("%s=%.80q is not a time: want RFC 3339, such as 2006-01-02T15:04:05Z", name, text)
		}
		if err != nil {
			return malformed("%s=%.80q: %v", name, text, err)
		}
		return nil
	}
	switch v.Kind() {
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return malformed("%s=%.80q: want 1 or 0", name, text)
		}
		v.SetBool(b)
	case reflect.Int:
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return malformed("%s=%.80q is not a number from 0", name, text)
		}
		v.SetInt(int64(n))
	default:
		v.SetString(text)
	}
	return nil
}

func malformed(format string, args ...any) *Error { return BadRequest("bad_request", format, args...) }
