// Package streampb holds the protobuf messages of package stream.
package streampb
