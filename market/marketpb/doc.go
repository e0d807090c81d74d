// Package marketpb holds the protobuf messages of the market: payloads of signed envelopes, the requests and replies of
// the streams ask, quote and lease, and the journal record of a hold. Package market converts them into checked values;
// other packages should not read their fields.
package marketpb
