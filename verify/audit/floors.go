package audit

import (
	"cmp"
	"slices"

	"github.com/starling-network/starling/market"
)

// Floor is the minimum for a class: two thirds of the arithmetic and four fifths of the memory rate that its hardware
// reaches with this network's kernels. One card behind two identities reaches half. A throttled card stays above it and
// sells less, since units are sold at their proven rates.
type Floor struct {
	Operations uint64 // int8 multiplications and additions a second
	Reads      uint64 // of 32 bytes each at a random place, a second
}

// Known is a class that audits can distinguish, or a family, if its products cannot be distinguished.
type Known struct {
	Class market.Class
	Floor
	VRAMMiB uint32 // least memory of a GPU of the class: fifteen sixteenths of the product's
	// Source is the origin of the floor: "measured", with card, place and date; "published", with the place; or
	// "assumed", with the data.
	Source string
}

// floors is the table of classes with a floor. A product has its own row or none: variants with other memory or another
// power limit (PCIe and NVL cards, laptops, MIG slices) have other rates than the one in the table. None is measured
// with this network's kernels on a GPU. Arithmetic is assumed: half to three quarters of a data sheet's peak where
// mma.sync reaches it, and on Hopper and Blackwell two thirds of the limit that traffic through shared memory sets (530
// and 570 TOPS, estimated). Published reads are of 8 bytes over tables of 4 to 16 GiB
// (github.com/NVIDIA-developer-blog/code-samples, issue 56); the others are assumed: an H200 reaches half of one read
// for each 64 bytes of memory bandwidth. A walk stays within challenge.Stretch at a time, so a larger memory is read as
// fast.
var floors = []Known{
	{"gpu/rtx-3060", Floor{50e12, 2_200e6}, 11_520, "assumed: 102 TOPS, 360 GB/s, 12 GB"},
	{"gpu/rtx-3090", Floor{140e12, 5_800e6}, 23_040, "assumed: 284 TOPS, 936 GB/s, 24 GB"},
	{"gpu/rtx-4090", Floor{320e12, 6_300e6}, 23_029, "assumed: 661 TOPS, 1,008 GB/s, 24 GB"},
	{"gpu/a100", Floor{285e12, 9_700e6}, 38_400, "assumed: SXM, 624 TOPS, 1,555 GB/s of 40 GB, 2,039 of 80 GB"},
	{"gpu/h100",
		Floor{350e12, 25_400e6}, 76_461, "SXM, 80 GB; arithmetic assumed, reads published: 31.8 G/s by NVIDIA"},
	{"gpu/h200", Floor{350e12, 28_800e6}, 134_785,
		"SXM, 141 GB; arithmetic assumed, reads published: 36 to 39 G/s by NVIDIA"},
	{"gpu/b200", Floor{380e12, 50e9}, 171_898, "assumed: SXM, 8,000 GB/s, 180 GB"},
	{"gpu", Floor{10e12, 1_000e6}, 4_096, "assumed: any GPU, a slice of one too"},
	{"cpu", Floor{5e9, 8e6}, 0, "assumed: each core of 1,000 milli-CPU, in portable code"},
}

// Floors returns the classes with a floor, ascending.
func Floors() []Known {
	return slices.SortedFunc(slices.Values(floors), func(a, b Known) int { return cmp.Compare(a.Class, b.Class) })
}

// KnownAs returns the row of a class: its own, or its family's. It returns false if there is neither.
func KnownAs(class market.Class) (Known, bool) {
	for _, c := range []market.Class{class, class.Family()} {
		if i := slices.IndexFunc(floors, func(k Known) bool { return k.Class == c }); i >= 0 {
			return floors[i], true
		}
	}
	return Known{}, false
}

// ProvenAs returns the class that a record of a unit proves: the unit's class if it has its own floor, else the family.
// So no record satisfies an order for a model without a floor.
func ProvenAs(class market.Class) market.Class {
	k, _ := KnownAs(class)
	return k.Class
}

// FloorOf returns the floor of a unit: its class's, or its family's if the class cannot be distinguished. It returns
// false if there is neither, or if the unit has less memory than any unit of the class.
func FloorOf(class market.Class, r market.Resources) (Floor, bool) {
	k, ok := KnownAs(class)
	if class.Family() == "cpu" {
		k.Operations, k.Reads = k.Operations*uint64(r.MilliCPU)/1000, k.Reads*uint64(r.MilliCPU)/1000
	} else {
		k.Operations, k.Reads = k.Operations/part(slowDown), k.Reads/part(slowDown)
	}
	return k.Floor, ok && k.Operations > 0 && k.Reads > 0 && (class.Family() == "cpu" || r.VRAMMiB >= k.VRAMMiB)
}
