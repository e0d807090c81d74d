// Package discoverypb holds the protobuf messages of package discovery.
package discoverypb
