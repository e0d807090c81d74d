package web

import (
	"fmt"

	"github.com/starling-network/starling/node/service"
)

// Inputs is the section of the configuration about inputs of jobs that a peer reads from the web.
type Inputs struct {
	// URLs permits inputs by URL. If false, inputs come from their buyers only.
	URLs bool `yaml:"urls"`
	// Hosts are those of the operator's own network that URLs may name, HOST or HOST:PORT. They may have private
	// addresses. Other hosts must be on the internet.
	Hosts []string `yaml:"hosts"`
}

// Default returns the section of a peer that reads the internet alone.
func Default() Inputs { return Inputs{URLs: true} }

// Check refuses hosts that are no hosts.
func (i Inputs) Check() error {
	_, err := i.Reader()
	return err
}

// Reader returns a client that reads the URLs of inputs, nil if none is read.
func (i Inputs) Reader() (*Client, error) {
	c, err := New(Config{Hosts: i.Hosts})
	if err != nil {
		return nil, fmt.Errorf("%w: inputs.hosts: %w", service.ErrConfig, err)
	}
	if !i.URLs {
		return nil, nil
	}
	return c, nil
}
