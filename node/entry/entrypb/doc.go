// Package entrypb holds the protobuf messages of package entry.
package entrypb
