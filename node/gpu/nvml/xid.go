//go:build cgo && nvml

package nvml

import (
	"fmt"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/starling-network/starling/node/gpu"
)

// waitMillis is how long one wait for events lasts. Nothing depends on it: after it comes the next.
const waitMillis = 5000

// xids counts the Xid errors of the devices since the process began. A nil one counts nothing.
type xids struct {
	mu   sync.Mutex
	seen map[string]gpu.Xid // by UUID; a device without such events is not in it
	fail string
	now  func() time.Time
	done chan struct{} // closed when the driver gives no more
}

// watch registers for the Xid errors of all devices and counts them while the process runs. It returns nil if the
// driver has no events.
func watch(d *driver) *xids {
	set, ok := ask(d, "nvmlEventSetCreate", d.lib.EventSetCreate)
	if !ok || !d.has("nvmlEventSetWait") {
		return nil
	}
	x := &xids{seen: map[string]gpu.Xid{}, now: time.Now, done: make(chan struct{})}
	count, _ := ask(d, "nvmlDeviceGetCount", d.lib.DeviceGetCount)
	for i := range count {
		dev, err := d.handle(i)
		if err != nil {
			continue
		}
		uuid, named := ask(d, "nvmlDeviceGetUUID", dev.GetUUID)
		types, has := ask(d, "nvmlDeviceGetSupportedEventTypes", dev.GetSupportedEventTypes)
		if !named || !has || types&nvml.EventTypeXidCriticalError == 0 {
			continue
		}
		_, registered := ask(d, "nvmlDeviceRegisterEvents", func() (struct{}, nvml.Return) {
			return struct{}{}, dev.RegisterEvents(nvml.EventTypeXidCriticalError, set)
		})
		if registered {
			x.seen[uuid] = gpu.Xid{}
		}
	}
	if len(x.seen) > 0 {
		go x.count(d, set)
	}
	return x
}

// count takes events until the driver gives no more.
func (x *xids) count(d *driver, set nvml.EventSet) {
	defer close(x.done)
	for {
		event, ret := set.Wait(waitMillis)
		switch ret {
		case nvml.SUCCESS:
			if event.EventType&nvml.EventTypeXidCriticalError == 0 {
				continue
			}
			if uuid, ok := ask(d, "nvmlDeviceGetUUID", event.Device.GetUUID); ok {
				x.add(uuid, event.EventData)
			}
		case nvml.ERROR_TIMEOUT:
		default:
			x.mu.Lock()
			x.fail = fmt.Sprintf("Xid errors: events stopped: %s", text(ret))
			x.mu.Unlock()
			return
		}
	}
}

func (x *xids) add(uuid string, number uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	was := x.seen[uuid]
	was.Count, was.Last, was.At = was.Count+1, number, x.now().Unix()
	if gpu.IsFault(number) {
		was.Fault = number
	}
	x.seen[uuid] = was
}

// of is the count of a device; nil for one without such events.
func (x *xids) of(uuid string) *gpu.Xid {
	if x == nil {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if seen, ok := x.seen[uuid]; ok {
		return &seen
	}
	return nil
}

// problem is the reason why no events are seen, or "".
func (x *xids) problem() string {
	if x == nil {
		return ""
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.fail
}
