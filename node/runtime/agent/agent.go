package agent

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/starling-network/starling/node/live"
	"github.com/starling-network/starling/node/runtime"
)

const (
	// codeFailed is the exit code if the command could not be run, as of ssh.
	codeFailed = 255
	// dialTime bounds the time until the peer takes the connection.
	dialTime = 30 * time.Second
)

// passed are the prefixes of variables that are sent with a command: MPI launchers read them. The rest of the caller's
// environment is not sent, as with rsh.
var passed = []string{"OMPI_MCA_", "PRTE_MCA_", "PMIX_MCA_", "HYDRA_"}

// Main is the agent, when the binary was started as one; otherwise it returns at once.
func Main() {
	if len(os.Args) == 0 || filepath.Base(os.Args[0]) != filepath.Base(runtime.AgentPath) {
		return
	}
	os.Exit(run(os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr, func() (net.Conn, error) {
		return net.DialTimeout("tcp4", Address, dialTime)
	}))
}

// run is the agent; it returns the exit code.
func run(args, env []string, stdin io.Reader, stdout, stderr io.Writer, dial func() (net.Conn, error)) int {
	req, input, err := parse(args, env)
	if err != nil {
		fmt.Fprintf(stderr, "rsh: %v\n", err)
		return codeFailed
	}
	if !input {
		stdin = strings.NewReader("")
	}
	code, err := start(req, stdin, stdout, stderr, dial)
	if err != nil {
		fmt.Fprintf(stderr, "rsh: %s: %v\n", req.Host, err)
		return codeFailed
	}
	return code
}

// valued are the options of rsh and ssh that take a value.
const valued = "lpoiFceEmbBDILRSWwJO"

// input is false if the command has no standard input.
func parse(args, env []string) (req Request, input bool, err error) {
	input = true
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		option := args[0]
		args = args[1:]
		if option == "--" {
			break
		}
		at := strings.IndexAny(option[1:], valued) + 1
		flags := option
		if at > 0 {
			flags = option[:at]
		}
		input = input && !strings.Contains(flags, "n")
		if at > 0 && at == len(option)-1 && len(args) > 0 { // its value is the next one
			args = args[1:]
		}
	}
	if len(args) < 2 {
		return Request{}, false, errors.New("usage: rsh HOST COMMAND… " +
			"(starts a command in another member of this cluster; there is no login)")
	}
	host := args[0][strings.LastIndexByte(args[0], '@')+1:] // every member has one user
	req = Request{Host: host, Argv: args[1:], Env: map[string]string{}}
	for _, kv := range env {
		k, v, _ := strings.Cut(kv, "=")
		for _, p := range passed {
			if strings.HasPrefix(k, p) {
				req.Env[k] = v
			}
		}
	}
	return req, input, req.Check()
}

// start has the peer run the command, and joins its input and output.
func start(req Request, stdin io.Reader, stdout, stderr io.Writer, dial func() (net.Conn, error)) (int, error) {
	conn, err := dial()
	if err != nil {
		return 0, fmt.Errorf("the peer that runs this container does not answer: %w", err)
	}
	defer conn.Close()
	if err := WriteRequest(conn, req); err != nil {
		return 0, err
	}
	go func() { // not waited for: its input may never end
		w := live.NewWriter(conn)
		if _, err := io.Copy(w.Stream(live.Stdin), stdin); err == nil {
			_ = w.Write(live.EOF, nil)
		}
	}()
	return live.Demultiplex(conn, stdout, stderr)
}
