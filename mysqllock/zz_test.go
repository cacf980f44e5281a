package mysqllock
import ("testing";"time";"context";"sync")
func TestZZHot(t *testing.T) {
	ctx := context.Background()
	for range 3 { for _, n := range []int{2, 16} {
		ls := openLockers(t, n, Options{})
		c, cancel := context.WithTimeout(ctx, 4*time.Second)
		turns := make([]int, n); var wg sync.WaitGroup
		for i, l := range ls { wg.Go(func() { for c.Err() == nil { lock, err := l.Lock(c, "n"); if err != nil { return }; turns[i]++; lock.Unlock(ctx) } }) }
		wg.Wait(); cancel()
		var sum, sq float64; for _, k := range turns { sum += float64(k); sq += float64(k)*float64(k) }
		t.Logf("%d clients: %.0f/s Jain %.3f %v", n, sum/4, sum*sum/(float64(n)*sq), turns)
	} }
}
