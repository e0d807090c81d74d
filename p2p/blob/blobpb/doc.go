// Package blobpb holds the protobuf messages of package blob.
package blobpb
