package render

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/distlock-go/distlock/internal/compare/report"
)

// browser starts a headless Chromium. Without one the test is skipped, unless
// DISTLOCK_REQUIRE_BROWSER is set.
func browser(t *testing.T) context.Context {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a browser")
	}
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		if os.Getenv("DISTLOCK_REQUIRE_BROWSER") != "" {
			t.Fatal("no Chromium is installed, and DISTLOCK_REQUIRE_BROWSER is set")
		}
		t.Skip("no Chromium is installed")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path),
		chromedp.NoSandbox, // root has none; the page is ours
		chromedp.WSURLReadTimeout(2*time.Minute))
	ctx, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	ctx, cancel := chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("%s does not start: %v", path, err)
	}
	return ctx
}

// TestBrowser opens reports in a real browser: all charts are drawn, nothing is wrong
// on the console, nothing is loaded, no script of a hostile name runs, no text is too
// pale to read or wider than the screen.
func TestBrowser(t *testing.T) {
	ctx := browser(t)
	for _, file := range []struct {
		name   string
		report *report.Report
		views  []view
	}{
		{"whole", fixture(), []view{{1280, "light"}, {390, "dark"}}},
		{"broken", broken(), []view{{1280, "dark"}, {390, "light"}}},
		{"bare", bareReport(), []view{{390, "dark"}}},
	} {
		path := filepath.Join(t.TempDir(), file.name+".html")
		f, err := os.Create(path)
		if err == nil {
			err = errors.Join(HTML(f, file.report), f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		want := 0
		for _, g := range (doc{file.report}).chartGroups() {
			want += len(g.Charts)
		}
		for _, v := range file.views {
			t.Run(fmt.Sprintf("%s/%d/%s", file.name, v.width, v.scheme), func(t *testing.T) { openPage(t, ctx, path, v, want) })
		}
	}
}

// view is how a page is looked at.
type view struct {
	width  int64
	scheme string
}

// inPage is what the page tells of itself.
type inPage struct {
	Drawn   string   `json:"drawn"`
	Empty   []string `json:"empty"` // charts without a mark
	Overlap int      `json:"overlap"`
	Pale    []string `json:"pale"`
	Images  int      `json:"images"`
	Alerts  int      `json:"alerts"`
}

// readPage counts what is drawn, and compares the colour of every text with the first
// opaque colour behind it (WCAG 2.2: 4.5 to 1).
const readPage = `(() => {
  const lum = c => { const [r, g, b] = c.match(/[\d.]+/g).slice(0, 3).map(v => { v /= 255; return v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; }); return .2126 * r + .7152 * g + .0722 * b; };
  const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; const n = c.match(/[\d.]+/g); if (n && (n.length === 3 || +n[3] === 1)) return c; } return 'rgb(255,255,255)'; };
  const pale = new Set();
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement, text = walk.currentNode.textContent.trim();
    if (!text || /^(SCRIPT|STYLE|NOSCRIPT)$/.test(e.tagName) || e.closest('noscript')) continue;
    const style = getComputedStyle(e), a = lum(e.closest('svg') ? style.fill : style.color), b = lum(behind(e));
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) pale.add(text.slice(0, 30) + ' ' + ratio.toFixed(1));
  }
  return {
    drawn: document.documentElement.dataset.drawn || '',
    empty: [...document.querySelectorAll('figure')].filter(f => f.querySelectorAll('.plot svg path').length < 3).map(f => f.id),
    overlap: document.documentElement.scrollWidth - innerWidth,
    pale: [...pale], images: document.images.length, alerts: document.querySelectorAll('.alert[role=alert]').length,
  };
})()`

// onPaper counts the charts cut off, or missing, as the page is printed.
const onPaper = `[...document.querySelectorAll('.plot')].filter(plot => {
  const svg = plot.querySelector('svg').getBoundingClientRect();
  return svg.height < 20 || [plot, plot.firstElementChild].some(e => {
    const box = e.getBoundingClientRect();
    return svg.bottom > box.bottom + 1 || svg.right > box.right + 1;
  });
}).length`

// hover moves the mouse over the middle of every chart with lines, until each has
// shown what the values are there.
const hover = `(async () => {
  const plots = [...document.querySelectorAll('figure')].filter(f => f.querySelector('.legend')).map(f => f.querySelector('.plot'));
  for (let tries = 0; tries < 300 && plots.some(p => !p.querySelector('.tip')); tries++) {
    for (const plot of plots) {
      const box = plot.getBoundingClientRect(), target = plot.querySelector('svg').parentElement;
      target.dispatchEvent(new MouseEvent('mousemove', { bubbles: true, clientX: box.left + box.width * (.4 + .2 * (tries % 2)), clientY: box.top + box.height / 2 }));
    }
    await new Promise(done => setTimeout(done, 100));
  }
  return plots.filter(p => !p.querySelector('.tip')).length;
})()`

func openPage(t *testing.T, ctx context.Context, path string, v view, want int) {
	ctx, cancel := chromedp.NewContext(ctx) // a tab
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, 2*time.Minute)
	defer stop()
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	said, err := listen(ctx, "file://"+path)
	if err != nil {
		t.Fatal(err)
	}
	_, err1 := chromedp.Call(ctx, cdplog.Enable, cdp.Empty{})
	_, err2 := chromedp.Call(ctx, network.Enable, network.EnableParams{})
	_, err3 := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: v.scheme}}})
	err4 := chromedp.Do(ctx, chromedp.EmulateViewport(v.width, 900), chromedp.Navigate("file://"+path))
	silent, err5 := chromedp.Run(ctx, chromedp.Evaluate[int](hover, chromedp.EvalAwaitPromise))
	got, err6 := chromedp.Run(ctx, chromedp.Evaluate[inPage](readPage))
	pdf, err7 := chromedp.Run(ctx, chromedp.PrintToPDF(chromedp.PDFPaper(chromedp.PaperA4), chromedp.PDFPrintBackground()))
	_, err8 := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print"})
	cut, err9 := chromedp.Run(ctx, chromedp.Evaluate[int](onPaper))
	err = errors.Join(err1, err2, err3, err4, err5, err6, err7, err8, err9)
	for _, text := range said() {
		t.Error(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got.Drawn != fmt.Sprint(want) || want == 0 || len(got.Empty) > 0 {
		t.Errorf("%q charts were drawn, want %d; without a mark: %v", got.Drawn, want, got.Empty)
	}
	if silent > 0 {
		t.Errorf("%d charts do not tell their values under the mouse", silent)
	}
	if got.Overlap > 0 {
		t.Errorf("the page is %d pixels wider than the screen", got.Overlap)
	}
	if len(got.Pale) > 0 {
		t.Errorf("too pale to read: %q", got.Pale)
	}
	if got.Images > 0 {
		t.Errorf("the page has %d images: a name was taken for HTML", got.Images)
	}
	if wantAlert := strings.HasPrefix(filepath.Base(path), "broken"); (got.Alerts > 0) != wantAlert {
		t.Errorf("%d alerts, want some: %v", got.Alerts, wantAlert)
	}
	if cut > 0 || len(pdf) < 10_000 {
		t.Errorf("%d charts are cut off on paper; the print has %d bytes", cut, len(pdf))
	}
	screenshots(t, ctx, v, pdf)
}

// listen gathers what must not happen while the page is open.
func listen(ctx context.Context, url string) (func() []string, error) {
	var mu sync.Mutex
	var said []string
	add := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, fmt.Sprintf(format, args...))
	}
	err := chromedp.Listen(ctx, func(ev any) {
		switch ev := ev.(type) {
		case *runtime.EventExceptionThrown:
			add("exception: %v", ev.ExceptionDetails)
		case *runtime.EventConsoleAPICalled:
			add("console: %s %s", ev.Type, ev.Args[0].Value)
		case *cdplog.EventEntryAdded:
			add("log: %s %s", ev.Entry.Level, ev.Entry.Text)
		case *cdppage.EventJavascriptDialogOpening:
			add("dialog: %s", ev.Message)
		case *network.EventRequestWillBeSent:
			if ev.Request.URL != url {
				add("loads %.80s", ev.Request.URL)
			}
		}
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return said
	}, err
}

// screenshots keeps the page for people to look at, in screens of its height, and as
// it is printed, in the folder that DISTLOCK_SCREENSHOTS names.
func screenshots(t *testing.T, ctx context.Context, v view, pdf []byte) {
	dir := os.Getenv("DISTLOCK_SCREENSHOTS")
	if dir == "" {
		return
	}
	name := strings.ReplaceAll(strings.TrimPrefix(t.Name(), "TestBrowser/"), "/", "-")
	_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: v.scheme}}})
	if err != nil {
		t.Fatal(err)
	}
	size, err := chromedp.Run(ctx, chromedp.Evaluate[[]float64]("[innerWidth, document.documentElement.scrollHeight]"))
	const screen = 1400
	beyond := true
	for i := 0; err == nil && float64(i*screen) < size[1]; i++ {
		var shot cdppage.CaptureScreenshotResult
		shot, err = chromedp.Call(ctx, cdppage.CaptureScreenshot, cdppage.CaptureScreenshotParams{CaptureBeyondViewport: &beyond,
			Clip: &cdppage.Viewport{Y: float64(i * screen), Width: size[0], Height: min(screen, size[1]-float64(i*screen)), Scale: 1}})
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d.png", name, i)), shot.Data, 0o644))
	}
	if err = errors.Join(err, os.WriteFile(filepath.Join(dir, name+".pdf"), pdf, 0o644)); err != nil {
		t.Error(err)
	}
}
