package localnet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// Skip makes a slot the newest one, unless it has passed, to spare tests the wait. Peers cannot do that: their endpoint
// only has Solana's methods.
func (c *Chain) Skip(ctx context.Context, slot uint64) error {
	if c.host == nil {
		return errors.New("an attached chain cannot skip slots")
	}
	body, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": 1, "method": "surfnet_timeTravel",
		"params": []any{map[string]uint64{"absoluteSlot": slot}},
	})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.host.rpc, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("skipping to slot %d: %w", slot, err)
	}
	defer resp.Body.Close()
	var answer struct{ Error *struct{ Message string } }
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return fmt.Errorf("skipping to slot %d: %w", slot, err)
	}
	if answer.Error != nil {
		return fmt.Errorf("skipping to slot %d: %s", slot, answer.Error.Message)
	}
	return nil
}
