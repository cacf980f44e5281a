package report

import "reflect"

// Mask replaces every text of the report by what f makes of it: what servers have said
// may have characters that a terminal acts on.
func (r *Report) Mask(f func(string) string) { maskValue(reflect.ValueOf(r).Elem(), f) }

func maskValue(v reflect.Value, f func(string) string) {
	if !v.CanSet() { // a field of another package, as in time.Time
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(f(v.String()))
	case reflect.Pointer:
		if !v.IsNil() {
			maskValue(v.Elem(), f)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			maskValue(v.Field(i), f)
		}
	case reflect.Slice:
		for i := range v.Len() {
			maskValue(v.Index(i), f)
		}
	case reflect.Map:
		maskMap(v, f)
	}
}

// maskMap masks keys and values. A map's entries cannot be changed in place.
func maskMap(v reflect.Value, f func(string) string) {
	if v.IsNil() {
		return
	}
	masked := reflect.MakeMapWithSize(v.Type(), v.Len())
	copied := func(from reflect.Value) reflect.Value {
		to := reflect.New(from.Type()).Elem()
		to.Set(from)
		maskValue(to, f)
		return to
	}
	for key, value := range v.Seq2() {
		masked.SetMapIndex(copied(key), copied(value))
	}
	v.Set(masked)
}
