//go:build linux

package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
)

func serve(addr, line string) { greet(listen(addr), line) }

// listen prints its addresses.
func listen(addr string) net.Listener {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	addrs, _ := net.InterfaceAddrs()
	fmt.Println(addrs)
	return l
}

func greet(l net.Listener, line string) {
	for {
		c, err := l.Accept()
		if err != nil {
			continue
		}
		_, _ = io.WriteString(c, line+"\n")
		_ = c.Close()
	}
}

func answer(addr, size string) {
	c, err := listen(addr).Accept()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	n, _ := strconv.Atoi(size)
	_, _ = io.WriteString(c, strings.Repeat("x", n))
	_ = c.Close()
}
