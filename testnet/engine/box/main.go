// Command box is the program inside the containers of the scenario. Its first argument is the action:
//
//	work        write a tick to standard output and /out/ticks every tenth of a second, report a freeze, and serve
//	            HTTP on port 8080: GET /healthz, GET /ticks, POST /fail (exit 7), POST /finish (write results, exit 0)
//	env         print the environment's variables about devices
//	cat         copy the standard input to the standard output
//	echo        echo the bytes received at TCP port 7000
//	notebook    serve HTTP at port 8888 to requests with the token of JUPYTER_TOKEN
//	talk        as rank 0 of a cluster echo the bytes received at TCP port 7000; as another rank count to rank 0 over
//	            one connection and print each echoed number
//	sleep N     wait for N ms
//	exit N      exit with N
//	sparse N    leave N files in /out with a size of 64 MiB and no blocks
//	links       leave links out of /out in it, and one regular file
//	flood MiB   print this amount of text
//	train F     count steps in /ckpt in the way of the framework F: torch, orbax or trainer
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"
)

func main() {
	args := append(os.Args[1:], "", "")
	n, _ := strconv.Atoi(args[1])
	var err error
	switch args[0] {
	case "work":
		err = work()
	case "env":
		fmt.Println(os.Getenv("STARLING_DEVICES"))
	case "cat":
		_, err = io.Copy(os.Stdout, os.Stdin)
	case "echo":
		err = echo("127.0.0.1:7000")
	case "notebook":
		err = notebook()
	case "talk":
		if os.Getenv("NODE_RANK") == "0" {
			err = echo(":7000")
		} else {
			err = talk()
		}
	case "sleep":
		time.Sleep(time.Duration(n) * time.Millisecond)
	case "exit":
		os.Exit(n)
	case "sparse":
		err = sparse(n)
	case "links":
		err = links()
	case "flood":
		err = flood(n)
	case "train":
		err = train(args[1])
	default:
		err = fmt.Errorf("unknown command %q", args[0])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "box:", err)
		os.Exit(1)
	}
}

const (
	tick   = 100 * time.Millisecond
	frozen = time.Second // a longer tick is reported
)

// work prints digests of its secrets as proof that it has them, because logs must not contain secrets.
func work() error {
	key, err := os.ReadFile("/run/secrets/key")
	if err != nil {
		return err
	}
	input, err := os.ReadFile("/data/input.txt")
	if err != nil {
		return err
	}
	fmt.Printf("secret file %x, variable %x\n", sum(key), sum([]byte(os.Getenv("TOKEN"))))
	var ticks atomic.Int64
	end := make(chan string, 1)
	ask := func(what string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost {
				http.Error(w, "POST", http.StatusMethodNotAllowed)
				return
			}
			select {
			case end <- what:
			default:
			}
		}
	}
	http.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
	http.HandleFunc("/ticks", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, ticks.Load()) })
	http.HandleFunc("/fail", ask("fail"))
	http.HandleFunc("/finish", ask("finish"))
	ln, err := net.Listen("tcp", "127.0.0.1:8080")
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	var server http.Server
	go func() { failed <- server.Serve(ln) }()
	fmt.Println("serving")
	for last := time.Now(); ; {
		select {
		case err := <-failed:
			return err
		case what := <-end:
			_ = server.Shutdown(context.Background()) // after the response to the client
			if what == "fail" {
				fmt.Println("asked to fail")
				os.Exit(7)
			}
			return os.WriteFile("/out/result.txt",
				append(bytes.ToUpper(input), fmt.Sprintf("%d ticks\n", ticks.Load())...), 0o644)
		case <-time.After(tick):
		}
		now := time.Now()
		if gap := now.Sub(last); gap > frozen {
			fmt.Printf("frozen for %d ms\n", gap.Milliseconds())
		}
		last = now
		n := ticks.Add(1)
		fmt.Printf("tick %d\n", n)
		if err := os.WriteFile("/out/ticks", fmt.Appendf(nil, "%d\n", n), 0o644); err != nil {
			return err
		}
	}
}

// talk counts over one connection until it breaks.
func talk() error {
	var c net.Conn
	for {
		var err error
		if c, err = net.DialTimeout("tcp", "head:7000", time.Second); err == nil {
			break
		}
		fmt.Println("not yet:", err)
		time.Sleep(tick)
	}
	fmt.Println("connected to", c.RemoteAddr())
	lines := bufio.NewScanner(c)
	for n := 1; ; n++ {
		if _, err := fmt.Fprintln(c, n); err != nil {
			return err
		}
		if !lines.Scan() || lines.Text() != strconv.Itoa(n) {
			return fmt.Errorf("got %q, want %d: %w", lines.Text(), n, errors.Join(lines.Err(), io.ErrUnexpectedEOF))
		}
		fmt.Println("back", n)
		time.Sleep(tick)
	}
}

func echo(at string) error {
	l, err := net.Listen("tcp", at)
	if err != nil {
		return err
	}
	fmt.Println("echoing")
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}()
	}
}

func sum(b []byte) []byte {
	s := sha256.Sum256(b)
	return s[:4]
}

func sparse(n int) error {
	for i := range n {
		name := filepath.Join("/out", strconv.Itoa(i))
		if err := errors.Join(os.WriteFile(name, nil, 0o644), os.Truncate(name, 64<<20)); err != nil {
			return err
		}
	}
	return nil
}

func links() error {
	err := os.WriteFile("/out/honest", []byte("honest\n"), 0o644)
	for name, to := range map[string]string{
		"passwd": "/etc/passwd", "root": "/", "up": "../../../../../../../../etc/passwd", "proc": "/proc/self/environ",
		"dir": "/etc",
	} {
		err = errors.Join(err, os.Symlink(to, filepath.Join("/out", name)))
	}
	return err
}

func flood(mib int) error {
	line := bytes.Repeat([]byte("x"), 1024)
	line[1023] = '\n'
	w := bufio.NewWriterSize(os.Stdout, 1<<20)
	for range mib << 10 {
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
	return w.Flush()
}

// notebook answers as Jupyter does, with its working directory.
func notebook() error {
	return http.ListenAndServe("127.0.0.1:8888", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if token := os.Getenv("JUPYTER_TOKEN"); token == "" || r.URL.Query().Get("token") != token {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		dir, _ := os.Getwd()
		fmt.Fprintln(w, dir)
	}))
}
