package api

import (
	"context"
	"net"
	"net/http"
	"time"
)

const idleConn = 5 * time.Second // a client keeps a connection that it does not use

// Endpoint is how to reach a peer's API; the peer writes it to its home.
type Endpoint struct {
	URL string `json:"url"`
	// Socket is the unix socket that leads to URL; empty: it is reached over TCP.
	Socket string `json:"socket,omitempty"`
	Token  string `json:"token"`
	PID    int    `json:"pid"`
}

// HTTP makes a client that reaches the API at URL.
func (e Endpoint) HTTP() *http.Client {
	if e.Socket == "" {
		return &http.Client{}
	}
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", e.Socket)
		},
		IdleConnTimeout: idleConn,
	}}
}
