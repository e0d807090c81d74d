package gpu

import (
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify/audit"
)

const (
	uuidA = "GPU-5a1b2c3d-0000-4000-8000-00000000000a"
	uuidB = "GPU-5a1b2c3d-0000-4000-8000-00000000000b"
	uuidM = "MIG-5a1b2c3d-0000-4000-8000-00000000000c"
)

func TestParseSelector(t *testing.T) {
	t.Parallel()
	cases := []struct {
		text string
		want Selector
		back string // canonical form, text itself when empty
	}{
		// docker's own
		{"all", Selector{All: true}, ""},
		{"ALL", Selector{All: true}, "all"},
		{"2", Selector{Count: 2}, ""},
		{"count=2", Selector{Count: 2}, "2"},
		{"count=all", Selector{All: true}, "all"},
		{"count=-1", Selector{All: true}, "all"},
		{"-1", Selector{All: true}, "all"},
		{"device=0", Selector{Devices: []string{"0"}}, ""},
		{`"device=0,2"`, Selector{Devices: []string{"0", "2"}}, "device=0,2"},
		{"device=0,2", Selector{Devices: []string{"0", "2"}}, ""},
		{"device=" + uuidA, Selector{Devices: []string{uuidA}}, ""},
		{`"device=` + uuidA + `,` + uuidM + `"`, Selector{Devices: []string{uuidA, uuidM}}, "device=" + uuidA + "," + uuidM},
		{"all,capabilities=utility", Selector{All: true}, "all"},
		{`driver=nvidia,count=1,"capabilities=compute,utility"`, Selector{Count: 1}, "1"},
		{`"device=1,2","capabilities=compute"`, Selector{Devices: []string{"1", "2"}}, "device=1,2"},
		{"capabilities=compute,utility,count=3", Selector{Count: 3}, "3"},
		{"driver=nvidia", Selector{Count: 1}, "1"}, // docker: one when nothing is said
		// ours
		{"h100", Selector{Count: 1, Model: "h100"}, ""},
		{"h100:1", Selector{Count: 1, Model: "h100"}, "h100"},
		{"H100:8", Selector{Count: 8, Model: "h100"}, "h100:8"},
		{"h100:all", Selector{All: true, Model: "h100"}, ""},
		{"rtx4090:2", Selector{Count: 2, Model: "rtx-4090"}, "rtx-4090:2"},
		{"RTX 4090", Selector{Count: 1, Model: "rtx-4090"}, "rtx-4090"},
		{"A100-SXM4-80GB", Selector{Count: 1, Model: "a100"}, "a100"},
		{"h100-mig-1g.10gb:7", Selector{Count: 7, Model: "h100-mig-1g-10gb"}, "h100-mig-1g-10gb:7"},
		{"vram>=24", Selector{Count: 1, MinVRAMMiB: 22855}, "1,vram>=24"},
		{"vram>=24GB", Selector{Count: 1, MinVRAMMiB: 22855}, "1,vram>=24"},
		{"vram>=24GiB", Selector{Count: 1, MinVRAMMiB: 24576}, "1,vram>=24GiB"},
		{"2, vram >= 23028MiB", Selector{Count: 2, MinVRAMMiB: 23028}, "2,vram>=23028MiB"},
		{"h100:8,vram>=80", Selector{Count: 8, Model: "h100", MinVRAMMiB: 76185}, ""},
		{"cap>=8.0", Selector{Count: 1, MinCapability: "8.0"}, "1,cap>=8.0"},
		{"4,cap>=9,vram>=80", Selector{Count: 4, MinCapability: "9.0", MinVRAMMiB: 76185}, "4,vram>=80,cap>=9.0"},
		{"count=8,h100", Selector{Count: 8, Model: "h100"}, "h100:8"},
	}
	for _, c := range cases {
		got, err := ParseSelector(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.text, got, c.want)
		}
		if c.back == "" {
			c.back = c.text
		}
		if got.String() != c.back {
			t.Errorf("%s: written %s, want %s", c.text, got, c.back)
		}
	}
}

func TestParseSelectorRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                               "list with commas",
		"0":                              "1 to 1024",
		"4090":                           "1 to 1024",
		"count=many":                     "all or a number",
		"-2":                             "not a model",
		"2,3":                            "count: given twice",
		"all,2":                          "count: given twice",
		"h100:8,count=8":                 "count: given twice",
		"h100,a100":                      "model: given twice",
		"h100:":                          "all or a number",
		"h100:8:9":                       "all or a number",
		"nvidia":                         "not a model",
		"h100/2":                         "not a model",
		"device=":                        "not an index",
		"device=0,0":                     "twice",
		"device=0,h100":                  "is not allowed with device=",
		"device=GPU-1":                   "not an index",
		"device=/dev/nvidia0":            "not an index",
		"device=0,count=2":               "is not allowed with device=",
		"device=0,vram>=24":              "is not allowed with device=",
		"driver=amd":                     "only nvidia",
		"capabilities=graphics":          "nothing else is offered",
		"options=x=y":                    "unknown key",
		"count=2,count=2":                "count: given twice",
		"vram=24":                        "write vram>=24",
		"cap=8":                          "write cap>=8",
		"vram>24":                        "only >=",
		"vram>=":                         "want a size",
		"vram>=0":                        "want a size",
		"vram>=-1":                       "want a size",
		"vram>=24TB":                     "want a size",
		"vram>=99999999999999999999":     "want a size",
		"vram>=4194305":                  "want a size",
		"cap>=gfx942":                    "compute capability like 8.0",
		"cap>=8.x":                       "compute capability like 8.0",
		"cores>=3":                       "vram and cap",
		"vram>=24,vram>=48":              "vram: given twice",
		"a\nb":                           "list with commas",
		`"unclosed`:                      "list with commas",
		strings.Repeat("a", 5000):        "at most",
		"device=" + manyDevices(65):      "more than 64",
		"capabilities=compute,h100,gpu ": "model: given twice",
	} {
		got, err := ParseSelector(text)
		if !errors.Is(err, ErrSelector) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %+v, %v; want %q", text, got, err, want)
		}
	}
}

func manyDevices(n int) string {
	var ids []string
	for i := range n {
		ids = append(ids, strconv.Itoa(100+i))
	}
	return strings.Join(ids, ",")
}

func TestForOrder(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"2": "", "h100:8,vram>=80": "", "cap>=8.0": "",
		"device=0": "order goes to all providers", "all": "needs a number of devices", "h100:all": "needs a number of devices",
	} {
		s, err := ParseSelector(text)
		if err != nil {
			t.Fatal(err)
		}
		err = s.ForOrder()
		if want == "" && err != nil || want != "" && (!errors.Is(err, ErrSelector) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// Any selector is written in a form that reads back to it.
func TestSelectorRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawSelector(t)
		back, err := ParseSelector(s.String())
		if err != nil || !reflect.DeepEqual(back, s) {
			t.Fatalf("%+v is written %s and read %+v, %v", s, s, back, err)
		}
	})
}

func drawSelector(t *rapid.T) Selector {
	if rapid.Bool().Draw(t, "named") {
		return Selector{Devices: rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"0", "1", "17", uuidA, uuidB, uuidM}), 1, 6, rapid.ID).Draw(t, "devices")}
	}
	s := Selector{All: rapid.Bool().Draw(t, "all")}
	if !s.All {
		s.Count = rapid.Uint32Range(1, MaxCount).Draw(t, "count")
	}
	s.Model = rapid.SampledFrom([]string{"", "h100", "rtx-4090", "rtx-6000-ada", "a100-mig-1g-5gb"}).Draw(t, "model")
	s.MinVRAMMiB = rapid.Uint64Range(0, maxVRAMMiB).Draw(t, "vram")
	s.MinCapability = rapid.SampledFrom([]string{"", "7.5", "8.0", "9.0", "12.0"}).Draw(t, "cap")
	return s
}

func FuzzParseSelector(f *testing.F) {
	for _, s := range []string{"all", "2", "h100:8,vram>=80", `"device=0,1"`, "device=" + uuidA, "driver=nvidia,count=2,capabilities=compute,utility", "cap>=8.0,vram>=24GiB", "a100-mig-1g.5gb"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSelector(text)
		if err != nil {
			return
		}
		back, err := ParseSelector(s.String())
		if err != nil || !reflect.DeepEqual(back, s) {
			t.Fatalf("%q is %+v, written %s and read %+v, %v", text, s, s, back, err)
		}
		_ = s.ForOrder()
		_, _ = s.Select(Inventory{Devices: []Device{sample(0)}})
	})
}

// sample is a device that nothing speaks against.
func sample(i int) Device {
	return Device{
		Vendor: NVIDIA, Index: i, UUID: uuidA[:len(uuidA)-1] + string("abcdef"[i]), Model: "NVIDIA H100 80GB HBM3", VRAMMiB: 81559,
		Capability: "9.0", PCI: "0000:0" + string("123456"[i]) + ":00.0",
	}
}

func TestSelect(t *testing.T) {
	t.Parallel()
	small := sample(2)
	small.Model, small.VRAMMiB, small.Capability = "NVIDIA A10", 23028, "8.6"
	sick := sample(3)
	sick.Refused = "it is on fire"
	slice := sample(4)
	slice.Index, slice.UUID, slice.Model, slice.VRAMMiB = 0, uuidM, "NVIDIA H100 80GB HBM3 MIG 1g.10gb", 9856
	slice.MIG = &MIG{Parent: uuidA, Profile: "1g.10gb"}
	inv := Inventory{Devices: []Device{sample(0), sample(1), small, sick, slice}}
	for text, want := range map[string][]int{
		"all": {0, 1, 2, 4}, "1": {0}, "4": {0, 1, 2, 4}, "h100:2": {0, 1}, "h100:all": {0, 1}, "all,vram>=24": {0, 1, 2},
		"all,vram>=24GiB": {0, 1}, "a10": {2}, "all,cap>=9.0": {0, 1, 4}, "device=1,2": {1, 2}, "device=" + uuidM: {4},
		"device=0," + uuidA: {0}, "h100-mig-1g.10gb": {4},
	} {
		s, err := ParseSelector(text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Select(inv)
		var at []int
		for _, d := range got {
			at = append(at, slices.IndexFunc(inv.Devices, func(o Device) bool { return o.UUID == d.UUID }))
		}
		if err != nil || !slices.Equal(at, want) {
			t.Errorf("%s: %v, %v; want %v", text, at, err, want)
		}
	}
	for text, want := range map[string]string{
		"5": "there are 4", "h100:3": "it is on fire", "device=3": "it is on fire", "device=9": "9 is not in this machine",
		"b200": "there are 0", "all,cap>=10.0": "there are 0", "vram>=192": "there are 0",
	} {
		s, err := ParseSelector(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := s.Select(inv); !errors.Is(err, ErrNotHere) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v; want %q", text, got, err, want)
		}
	}
}

func TestModelClass(t *testing.T) {
	t.Parallel()
	for model, want := range map[string]string{
		"NVIDIA H100 80GB HBM3":                              "h100",
		"NVIDIA H100 80GB HBM3 (simulated)":                  "h100",
		"NVIDIA H100 PCIe":                                   "h100-pcie",
		"NVIDIA H100 NVL":                                    "h100-nvl",
		"NVIDIA H200":                                        "h200",
		"NVIDIA H200 NVL":                                    "h200-nvl",
		"NVIDIA B200 180GB HBM3e":                            "b200",
		"NVIDIA GH200 480GB":                                 "gh200",
		"NVIDIA GB200":                                       "gb200",
		"NVIDIA GeForce RTX 4090":                            "rtx-4090",
		"NVIDIA GeForce RTX 4070 Ti SUPER":                   "rtx-4070-ti-super",
		"NVIDIA GeForce RTX 4090 Laptop GPU":                 "rtx-4090-laptop",
		"GeForce GTX 1080 Ti":                                "gtx-1080-ti",
		"NVIDIA A100-SXM4-80GB":                              "a100",
		"NVIDIA A100-SXM4-40GB":                              "a100",
		"NVIDIA A100 80GB PCIe":                              "a100-pcie",
		"NVIDIA A10G":                                        "a10g",
		"Tesla T4":                                           "t4",
		"Tesla V100-SXM2-16GB":                               "v100",
		"Tesla P100-PCIE-16GB":                               "p100-pcie",
		"NVIDIA RTX 6000 Ada Generation":                     "rtx-6000-ada",
		"Quadro RTX 6000":                                    "quadro-rtx-6000",
		"NVIDIA RTX A6000":                                   "rtx-a6000",
		"NVIDIA RTX PRO 6000 Blackwell Server Edition":       "rtx-pro-6000-blackwell",
		"NVIDIA RTX PRO 6000 Blackwell Server MIG 1g.24gb":   "rtx-pro-6000-mig-1g-24gb",
		"NVIDIA L40S":                                        "l40s",
		"NVIDIA TITAN V":                                     "titan-v",
		"AMD Instinct MI300X":                                "mi300x",
		"AMD Instinct MI300X OAM":                            "mi300x",
		"AMD Radeon RX 7900 XTX":                             "rx-7900-xtx",
		"AMD Radeon Pro W7900":                               "radeon-pro-w7900",
		"NVIDIA H100 80GB HBM3 MIG 1g.10gb":                  "h100-mig-1g-10gb",
		"NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb (simulated)":   "a100-mig-1c-3g-20gb",
		"NVIDIA H100 80GB HBM3 MIG 1g.10gb+me":               "h100-mig-1g-10gb-me",
		"h100-mig-1g.10gb":                                   "h100-mig-1g-10gb",
		"rtx4090":                                            "rtx-4090",
		"Frobnicator 9000":                                   "frobnicator-9000",
		"":                                                   "unknown",
		"NVIDIA Graphics Device":                             "unknown",
		"графика":                                            "unknown",
		strings.Repeat("x", 100):                             strings.Repeat("x", 28),
		strings.Repeat("x", 100) + " MIG 1c.2g.20gb+me":      "xxxxxxxxxx-mig-1c-2g-20gb-me",
		"a MIG " + strings.Repeat("z", 100):                  "a",
		"NVIDIA H100 80GB HBM3 MIG 7g.80gb MIG 7g.80gb more": "h100-mig-7g-80gb-mig-7g",
	} {
		if got := ModelClass(model); got != want {
			t.Errorf("%s: %s, want %s", model, got, want)
		}
	}
}

// What is not the product that a floor is of is proven as a GPU and no more: slices, cards for PCIe, laptops, products beside it.
func TestAttackMIGSliceAsModel(t *testing.T) {
	t.Parallel()
	for _, model := range []string{
		"NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA H100 80GB HBM3 MIG 7g.80gb", "NVIDIA H200 MIG 1g.18gb", "NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA H200 NVL",
		"NVIDIA A100 80GB PCIe", "NVIDIA A100-PCIE-40GB", "NVIDIA B300 SXM6 AC", "NVIDIA GH200 480GB", "NVIDIA GB200", "NVIDIA GB300", "NVIDIA H20", "NVIDIA L40S", "NVIDIA L4",
		"NVIDIA A10", "NVIDIA RTX A6000", "NVIDIA GeForce RTX 5090", "NVIDIA GeForce RTX 4080", "NVIDIA GeForce RTX 4090 D", "NVIDIA GeForce RTX 4090 Laptop GPU",
		"NVIDIA GeForce RTX 3090 Ti", "NVIDIA GeForce RTX 3060 Ti", "NVIDIA GeForce RTX 3060 Laptop GPU", "Tesla V100-SXM2-16GB", "Tesla T4", "NVIDIA A30", "NVIDIA A800-SXM4-80GB", "NVIDIA H800",
	} {
		class := Device{Model: model}.Class()
		if as := audit.ProvenAs(class); as != "gpu" {
			t.Errorf("%s is proven as %s", model, as)
		}
	}
	for model, want := range map[string]market.Class{
		"NVIDIA H100 80GB HBM3": "gpu/h100", "NVIDIA H200": "gpu/h200", "NVIDIA B200": "gpu/b200", "NVIDIA A100-SXM4-40GB": "gpu/a100", "NVIDIA A100-SXM4-80GB": "gpu/a100",
		"NVIDIA GeForce RTX 4090": "gpu/rtx-4090", "NVIDIA GeForce RTX 3090": "gpu/rtx-3090", "NVIDIA GeForce RTX 3060": "gpu/rtx-3060",
	} {
		if as := audit.ProvenAs(Device{Model: model}.Class()); as != want {
			t.Errorf("%s is proven as %s", model, as)
		}
	}
}

// Every name has a class that the market takes, and a class is its own class.
func FuzzModelClass(f *testing.F) {
	for _, s := range []string{"NVIDIA H100 80GB HBM3", "rtx80gb", "devicedevicedevicedevicedevice", "a mig " + strings.Repeat("1g", 40), "Radeon NVIDIA RX 7", "graphicsx mig 1c.2g.20gb+meee"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, model string) {
		class := ModelClass(model)
		if err := (Device{Model: model}).Class().Check(); err != nil {
			t.Fatal(err)
		}
		if again := ModelClass(class); again != class {
			t.Fatalf("%q is %s, which is %s", model, class, again)
		}
	})
}
