package modeltest

import (
	"reflect"
	"slices"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market/sign"
)

// corrupt replaces one field of a call by another value of its type. ok is false if a signer of the result has no key,
// so that no transaction is possible.
func (w *World) corrupt(c program.Call) (changed program.Call, ok bool) {
	v := reflect.New(reflect.TypeOf(c)).Elem()
	v.Set(reflect.ValueOf(c))
	w.change(v.Field(w.choice(v.NumField())))
	changed = v.Interface().(program.Call)
	return changed, w.signable(changed)
}

// signable reports whether all signers have keys.
func (w *World) signable(c program.Call) bool {
	wallets := w.Wallets()
	for _, m := range c.Instruction(w.Program).Accounts {
		if m.Signer && !slices.Contains(wallets, m.Key) {
			return false
		}
	}
	return true
}

// change works in place; shared values are copied first.
func (w *World) change(v reflect.Value) {
	switch v.Kind() {
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		most := ^uint64(0) >> (64 - v.Type().Bits())
		v.SetUint(one(w, []uint64{0, v.Uint() + 1, v.Uint() - 1, most, most / 2, v.Uint() * 2}) & most)
	case reflect.Int32:
		v.SetInt(int64(int32(v.Int()) ^ 1<<w.choice(32)))
	case reflect.Array:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			w.change(v.Index(w.choice(v.Len())))
			return
		}
		if v.Type() == reflect.TypeFor[sign.Key]() {
			v.Set(reflect.ValueOf(w.address()))
			return
		}
		v.Index(w.choice(v.Len())).SetUint(w.upTo(255))
	case reflect.Struct:
		w.change(v.Field(w.choice(v.NumField())))
	case reflect.Slice:
		n := v.Len()
		if n == 0 {
			return
		}
		copied := reflect.MakeSlice(v.Type(), n, n)
		reflect.Copy(copied, v)
		v.Set(copied)
		switch w.choice(4) {
		case 0:
			v.Set(v.Slice(0, n-1))
		case 1:
			v.Set(reflect.Append(v, v.Index(w.choice(n))))
		case 2:
			reflect.Swapper(v.Interface())(w.choice(n), w.choice(n))
		case 3:
			w.change(v.Index(w.choice(n)))
		}
	case reflect.String:
		v.SetString(v.String() + "x")
	}
}

// address returns any address with a meaning in the world.
func (w *World) address() sign.Key {
	switch w.choice(8) {
	case 0:
		return one(w, append(sorted(w.Networks), w.Mints...))
	case 1:
		return one(w, append(sorted(w.Escrows), w.Wallets()...))
	case 2:
		return one(w, append(sorted(w.Tranches), w.Wallets()...))
	case 3:
		return one(w, append(sorted(w.Providers), w.Wallets()...))
	case 4:
		return one(w, append(append(sorted(w.Attested), sorted(w.Anchors)...), w.Wallets()...))
	case 5, 6:
		return one(w, sorted(w.Tokens))
	}
	return w.person()
}
