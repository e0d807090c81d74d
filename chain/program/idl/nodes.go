package main

import "strings"

// node is a node of a Codama tree (https://github.com/codama-idl/codama).
type node map[string]any

func number(format string) node {
	return node{"kind": "numberTypeNode", "format": format, "endian": "le"}
}

var (
	u8, u16, u32, u64, i32 = number("u8"), number("u16"), number("u32"), number("u64"), number("i32")
	key                    = node{"kind": "publicKeyTypeNode"}
	hash                   = sized(32)
	yesno                  = node{"kind": "booleanTypeNode", "size": u8}
	rest                   = node{"kind": "remainderCountNode"}
)

func sized(n int) node {
	return node{"kind": "fixedSizeTypeNode", "size": n, "type": node{"kind": "bytesTypeNode"}}
}

// text is a string of n bytes, padded with zeros.
func text(n int) node {
	return node{"kind": "fixedSizeTypeNode", "size": n, "type": node{"kind": "stringTypeNode", "encoding": "utf8"}}
}

func link(name string) node { return node{"kind": "definedTypeLinkNode", "name": name} }

func array(of, count node) node { return node{"kind": "arrayTypeNode", "item": of, "count": count} }

func prefixed(by node) node { return node{"kind": "prefixedCountNode", "prefix": by} }

func times(n int) node { return node{"kind": "fixedCountNode", "value": n} }

// counted is the count of an array that does not stand right before it: a byte at an offset from there, or from the
// account's beginning.
func counted(offset int, from string) node {
	there := node{"kind": "preOffsetTypeNode", "offset": offset, "strategy": from, "type": u8}
	return prefixed(node{"kind": "postOffsetTypeNode", "offset": 0, "strategy": "preOffset", "type": there})
}

// after leaves bytes out that such a count fills in.
func after(n int, of node) node {
	return node{"kind": "preOffsetTypeNode", "offset": n, "strategy": "relative", "type": of}
}

// field is one of a struct or of a call's data.
type field struct {
	name  string
	of    node
	value node // its constant value; nil: it is an argument
}

func f(name string, of node) field { return field{name: name, of: of} }

// always is a byte that never is another.
func always(name string, n int) field {
	return field{name, u8, node{"kind": "numberValueNode", "number": n}}
}

// zeros are reserved bytes.
func zeros(name string, of node, n int) field {
	return field{name, of, node{"kind": "bytesValueNode", "encoding": "base16", "data": strings.Repeat("00", n)}}
}

func (f field) node(kind string) node {
	n := node{"kind": kind, "name": f.name, "type": f.of}
	if f.value != nil {
		n["defaultValue"], n["defaultValueStrategy"] = f.value, "omitted"
	}
	return n
}

func structure(fields ...field) node {
	list := []node{}
	for _, f := range fields {
		list = append(list, f.node("structFieldTypeNode"))
	}
	return node{"kind": "structTypeNode", "fields": list}
}

func constant(n int, at int) node {
	return node{"kind": "constantDiscriminatorNode", "offset": at,
		"constant": node{"kind": "constantValueNode", "type": u8,
			"value": node{"kind": "numberValueNode", "number": n}}}
}

func address(k string) node { return node{"kind": "publicKeyValueNode", "publicKey": k} }
