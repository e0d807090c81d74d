//go:build linux

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// store is the way to Ray's global control store, which knows the nodes. The question put to it is the one that `ray list nodes`
// and ray.nodes() end at, without a Python for it: two processors have enough to do with Ray. The store speaks gRPC: HTTP/2, and
// messages behind a byte and their length.
type store struct {
	token     string
	transport *http.Transport
}

// newStore asks with the cluster's token over connections that dial makes: one, as long as it holds.
func newStore(token string, dial func(context.Context) (net.Conn, error)) *store {
	s := &store{token, &http.Transport{Protocols: new(http.Protocols), DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}}
	s.transport.Protocols.SetUnencryptedHTTP2(true)
	return s
}

func (s *store) close() { s.transport.CloseIdleConnections() }

// nodes is how many nodes there are that are alive.
func (s *store) nodes(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	const all = "\x00\x00\x00\x00\x00" // GetAllNodeInfoRequest without a field
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://gcs/ray.rpc.NodeInfoGcsService/GetAllNodeInfo", strings.NewReader(all))
	if err != nil {
		return 0, err
	}
	req.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}, "Authorization": {"Bearer " + s.token}}
	res, err := s.transport.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	reply, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return 0, err
	}
	if code := res.Trailer.Get("Grpc-Status") + res.Header.Get("Grpc-Status"); code != "0" || len(reply) < len(all) {
		return 0, fmt.Errorf("the control store answers %s, gRPC status %q %s", res.Status, code, res.Trailer.Get("Grpc-Message")+res.Header.Get("Grpc-Message"))
	}
	return alive(reply[len(all):])
}

// The fields of Ray's gcs_service.proto and gcs.proto.
const (
	infoList  = 2 // GetAllNodeInfoReply.node_info_list
	nodeState = 7 // GcsNodeInfo.state: 0 or not there when it is alive
)

var errReply = errors.New("the control store's reply is no GetAllNodeInfoReply")

// alive counts the nodes of a GetAllNodeInfoReply that are alive.
func alive(reply []byte) (n int, err error) {
	err = each(reply, func(field protowire.Number, info []byte, _ uint64) error {
		if field != infoList {
			return nil
		}
		dead := false
		err := each(info, func(field protowire.Number, _ []byte, v uint64) error {
			dead = dead || field == nodeState && v != 0
			return nil
		})
		if !dead {
			n++
		}
		return err
	})
	return n, err
}

// each calls f with every field of a message: its bytes or its number.
func each(m []byte, f func(field protowire.Number, b []byte, v uint64) error) error {
	for len(m) > 0 {
		field, kind, n := protowire.ConsumeTag(m)
		if n < 0 {
			return errReply
		}
		m = m[n:]
		var b []byte
		var v uint64
		switch kind {
		case protowire.BytesType:
			b, n = protowire.ConsumeBytes(m)
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(m)
		default:
			n = protowire.ConsumeFieldValue(field, kind, m)
		}
		if n < 0 {
			return errReply
		}
		if err := f(field, b, v); err != nil {
			return err
		}
		m = m[n:]
	}
	return nil
}
