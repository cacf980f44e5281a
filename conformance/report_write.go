package conformance

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

// WriteJSON writes the report as one indented JSON object. Durations are in
// nanoseconds.
func (r Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

type junitSuite struct {
	XMLName    xml.Name        `xml:"testsuite"`
	Name       string          `xml:"name,attr"`
	Tests      int             `xml:"tests,attr"`
	Failures   int             `xml:"failures,attr"`
	Errors     int             `xml:"errors,attr"`
	Skipped    int             `xml:"skipped,attr"`
	Time       string          `xml:"time,attr"`
	Timestamp  string          `xml:"timestamp,attr"`
	Properties []junitProperty `xml:"properties>property"`
	Cases      []junitCase     `xml:"testcase"`
}

type junitProperty struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Time    string        `xml:"time,attr"`
	Failure *junitMessage `xml:"failure,omitempty"`
	Error   *junitMessage `xml:"error,omitempty"`
	Skipped *junitMessage `xml:"skipped,omitempty"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes the report in the XML that build servers read. What was
// inconclusive is skipped there: the format knows no fourth outcome. If the examination was interrupted, that is one more
// test case, with an error.
func (r Report) WriteJUnit(w io.Writer) error {
	suite := junitSuite{
		Name:      "distlock conformance " + r.Backend,
		Tests:     len(r.Results),
		Failures:  r.Count(Failed),
		Skipped:   r.Count(Skipped) + r.Count(Inconclusive),
		Time:      fmt.Sprintf("%.3f", r.Took.Seconds()),
		Timestamp: r.Started.UTC().Format("2006-01-02T15:04:05"),
		Properties: []junitProperty{
			{"capabilities", r.Caps}, {"timing", r.Timing.String()},
			{"calibration", r.Calibration.String()}, {"seed", fmt.Sprint(r.Seed)},
		},
	}
	for _, res := range r.Results {
		c := junitCase{
			Class: "conformance." + Check{ID: res.ID}.Group(),
			Name:  res.ID,
			Time:  fmt.Sprintf("%.3f", res.Took.Seconds()),
		}
		headline, _, _ := strings.Cut(res.Reason, "\n")
		switch res.Status {
		case Failed:
			c.Failure = &junitMessage{headline, res.Text()}
		case Skipped:
			c.Skipped = &junitMessage{headline, ""}
		case Inconclusive:
			c.Skipped = &junitMessage{"inconclusive: " + headline, res.Text()}
		}
		suite.Cases = append(suite.Cases, c)
	}
	if r.Interrupted > 0 {
		suite.Tests, suite.Errors = suite.Tests+1, 1
		suite.Cases = append(suite.Cases, junitCase{Class: "conformance", Name: "interrupted", Time: "0.000",
			Error: &junitMessage{r.notRun(), ""}})
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(suite); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
