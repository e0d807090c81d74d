package guard

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

// runNet holds a network for the containers that join it. It makes the device, passes it to the peer on each request,
// and ends on request or when no peer was connected for the grace. No tenant's program runs in its container.
func runNet() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("hiding from other processes: %w", err)
	}
	// A stopping engine signals this process and the programs at once; the programs may still need the network.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals)
	conn, err := connect()
	if err != nil {
		return err
	}
	made, tun, err := firstNet(conn)
	if err != nil {
		return err
	}
	defer tun.Close()
	for conn != nil {
		if netRequests(conn, tun) {
			return nil
		}
		_ = conn.Close()
		conn = reconnect(made.Grace, made.Token)
	}
	return errors.New("no peer came back")
}

// firstNet makes the device that the peer orders.
func firstNet(conn *Conn) (NetRequest, *os.File, error) {
	_ = conn.SetDeadline(time.Now().Add(patience))
	b, files, err := conn.Receive()
	if err != nil {
		return NetRequest{}, nil, fmt.Errorf("receiving order: %w", err)
	}
	_ = conn.SetDeadline(time.Time{})
	CloseFiles(files)
	req, err := DecodeNetRequest(b)
	if err == nil && req.Op != NetMake {
		err = fmt.Errorf("receiving order: operation %q", req.Op)
	}
	var tun *os.File
	if err == nil {
		tun, err = makeTUN(req)
	}
	if err != nil {
		_ = conn.Send(Answer{Error: err.Error()})
		return NetRequest{}, nil, err
	}
	_ = conn.Send(Answer{}) // a peer that is gone shows at the next message
	return req, tun, nil
}

// netRequests handles requests. It returns true if the peer ended the network, and false if the connection ended.
func netRequests(conn *Conn, tun *os.File) (ended bool) {
	for {
		b, files, err := conn.Receive()
		CloseFiles(files)
		if err != nil {
			return false
		}
		req, err := DecodeNetRequest(b)
		if err != nil {
			return false
		}
		a := Answer{ID: req.ID}
		switch req.Op {
		case NetMake:
			a.Error = "the device is made already"
		case NetTun:
			_ = conn.Send(a, tun)
			continue
		case NetMTU:
			if err := changeMTU(req.MTU); err != nil {
				a.Error = err.Error()
			}
		case NetEnd:
			return true
		case NetAdopt:
		}
		_ = conn.Send(a)
	}
}
