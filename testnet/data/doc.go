// Package data runs jobs on a network of real peers with inputs from everywhere that they can come from, and outputs
// to S3: a real S3 server, and small servers with the protocols of a model hub and of a gateway to IPFS, all of them on
// loopback with TLS. Some servers lie. testnet/scenarios/data.sh shows the test of this package.
//
//	https, hub ──────────────▶ provider ──▶ rank /in ──▶ /out ──▶ buyer ──▶ s3://bucket/results
//	s3, ipfs ──▶ buyer ──▶ peer ──┘
package data
