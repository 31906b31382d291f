// Package kubernetes checks the manifests of this folder: every field exists in the types that Kubernetes and the Gateway API publish,
// and what refers to something else by name, label or port finds it.
package kubernetes

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"
)

// A deployment is all objects of the manifests.
type deployment struct {
	servers apps.Deployment
	service core.Service
	pool    inferencePool
	route   gateway.HTTPRoute
}

// An inferencePool has the fields of InferencePool in inference.networking.k8s.io/v1 that manifests for all of the releases 1.0 to 1.6 of
// the Gateway API Inference Extension may have.
type inferencePool struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string            `json:"name"`
		Namespace string            `json:"namespace"`
		Labels    map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		Selector struct {
			MatchLabels map[string]string `json:"matchLabels"`
		} `json:"selector"`
		TargetPorts       []poolPort `json:"targetPorts"`
		EndpointPickerRef struct {
			Group       string    `json:"group"`
			Kind        string    `json:"kind"`
			Name        string    `json:"name"`
			Port        *poolPort `json:"port"`
			FailureMode string    `json:"failureMode"`
		} `json:"endpointPickerRef"`
	} `json:"spec"`
}

type poolPort struct {
	Number int32 `json:"number"`
}

// decode decodes documents strictly: a field that does not exist, or that exists twice, is an error.
func decode(documents [][]byte) (*deployment, error) {
	d := &deployment{}
	into := map[string]any{"apps/v1 Deployment": &d.servers, "v1 Service": &d.service,
		"inference.networking.k8s.io/v1 InferencePool": &d.pool, "gateway.networking.k8s.io/v1 HTTPRoute": &d.route}
	for _, document := range documents {
		var named struct{ APIVersion, Kind string }
		if err := yaml.Unmarshal(document, &named); err != nil {
			return nil, err
		}
		kind := named.APIVersion + " " + named.Kind
		object := into[kind]
		if object == nil {
			return nil, fmt.Errorf("a second %s, or an unknown kind", kind)
		}
		delete(into, kind)
		if err := yaml.UnmarshalStrict(document, object); err != nil {
			return nil, fmt.Errorf("%s: %w", kind, err)
		}
	}
	if len(into) > 0 {
		return nil, fmt.Errorf("there is no %s", strings.Join(slices.Sorted(maps.Keys(into)), ", "))
	}
	return d, nil
}

// check returns everything that is wrong with the objects.
func (d *deployment) check() error {
	var wrong []error
	demand := func(holds bool, format string, args ...any) {
		if !holds {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	for _, name := range []string{d.servers.Name, d.service.Name, d.pool.Metadata.Name, d.route.Name} {
		demand(len(validation.IsDNS1123Label(name)) == 0, "%q is not the name of an object", name)
	}

	labels := d.servers.Spec.Template.Labels
	selects := func(selector map[string]string) bool {
		for name, value := range selector {
			if labels[name] != value {
				return false
			}
		}
		return len(selector) > 0
	}
	demand(d.servers.Spec.Selector != nil && selects(d.servers.Spec.Selector.MatchLabels), "the Deployment does not select its pods")
	demand(selects(d.service.Spec.Selector), "the Service does not select the pods")
	demand(selects(d.pool.Spec.Selector.MatchLabels), "the InferencePool does not select the pods")

	pod := d.servers.Spec.Template.Spec
	demand(len(pod.Containers) == 1, "%d containers", len(pod.Containers))
	for _, c := range pod.Containers {
		wrong = append(wrong, checkContainer(c, pod.Volumes))
		ports := map[string]int32{}
		for _, port := range c.Ports {
			ports[port.Name] = port.ContainerPort
		}
		demand(len(d.service.Spec.Ports) == 1 && ports[d.service.Spec.Ports[0].TargetPort.StrVal] > 0, "the Service has no port of the container")
		demand(len(d.service.Spec.Ports) == 1 && d.service.Spec.Ports[0].Port > 0, "the Service has no port")
		for _, port := range d.pool.Spec.TargetPorts {
			demand(slices.Contains(slices.Collect(maps.Values(ports)), port.Number), "the pool has the port %d, which the container has not", port.Number)
		}
		if c.Lifecycle != nil && c.Lifecycle.PreStop != nil && c.Lifecycle.PreStop.Sleep != nil && pod.TerminationGracePeriodSeconds != nil {
			drain, err := time.ParseDuration(argument(c, "drain"))
			needed := time.Duration(c.Lifecycle.PreStop.Sleep.Seconds)*time.Second + drain
			grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second
			demand(err == nil && needed < grace, "preStop and -drain take %v, but the pod is killed after %v: %v", needed, grace, err)
		} else {
			demand(false, "no preStop, or no terminationGracePeriodSeconds")
		}
	}

	spec := d.pool.Spec
	demand(len(spec.TargetPorts) == 1, "the pool has %d target ports, but release 1.0 allows 1", len(spec.TargetPorts))
	picker := spec.EndpointPickerRef
	demand(len(validation.IsDNS1123Label(picker.Name)) == 0, "%q is not the name of an endpoint picker", picker.Name)
	demand(picker.Port != nil && 0 < picker.Port.Number && picker.Port.Number < 1<<16, "the endpoint picker has no port")
	demand(slices.Contains([]string{"", "FailOpen", "FailClose"}, picker.FailureMode), "failureMode is %q", picker.FailureMode)

	demand(len(d.route.Spec.ParentRefs) > 0, "the HTTPRoute has no gateway")
	demand(len(d.route.Spec.Rules) == 1, "the HTTPRoute has %d rules", len(d.route.Spec.Rules))
	for _, rule := range d.route.Spec.Rules {
		group, _, _ := strings.Cut(d.pool.APIVersion, "/")
		for _, to := range rule.BackendRefs {
			demand(to.Group != nil && string(*to.Group) == group && to.Kind != nil && string(*to.Kind) == d.pool.Kind &&
				string(to.Name) == d.pool.Metadata.Name, "the HTTPRoute leads to %+v, which is not the pool", to.BackendObjectReference)
		}
		demand(len(rule.BackendRefs) == 1, "the HTTPRoute leads to %d pools", len(rule.BackendRefs))
		for _, match := range rule.Matches {
			demand(match.Path != nil && match.Path.Type != nil && *match.Path.Type == gateway.PathMatchPathPrefix && match.Path.Value != nil &&
				strings.HasPrefix(*match.Path.Value, "/"), "the HTTPRoute has no prefix of a path")
		}
		if rule.Timeouts != nil && rule.Timeouts.Request != nil {
			limit := string(*rule.Timeouts.Request)
			demand(regexp.MustCompile(`^([0-9]{1,5}(h|m|s|ms)){1,4}$`).MatchString(limit), "the time limit of the HTTPRoute is %q", limit)
		}
	}
	return errors.Join(wrong...)
}

// checkContainer checks what the types of Kubernetes leave open.
func checkContainer(c core.Container, volumes []core.Volume) error {
	var wrong []error
	demand := func(holds bool, format string, args ...any) {
		if !holds {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	demand(len(validation.IsDNS1123Label(c.Name)) == 0, "%q is not the name of a container", c.Name)
	demand(c.Image != "", "there is no image")
	ports := map[string]bool{}
	for _, port := range c.Ports {
		demand(len(validation.IsValidPortName(port.Name)) == 0, "%q is not the name of a port", port.Name)
		demand(len(validation.IsValidPortNum(int(port.ContainerPort))) == 0, "%d is not a port", port.ContainerPort)
		ports[port.Name] = true
	}
	for name, probe := range map[string]*core.Probe{"startup": c.StartupProbe, "readiness": c.ReadinessProbe, "liveness": c.LivenessProbe} {
		switch {
		case probe == nil:
			demand(false, "there is no %s probe", name)
		case probe.HTTPGet != nil:
			demand(probe.HTTPGet.Path == "/health" && ports[probe.HTTPGet.Port.StrVal], "the %s probe asks %+v", name, probe.HTTPGet)
		default:
			demand(probe.TCPSocket != nil && ports[probe.TCPSocket.Port.StrVal], "the %s probe asks no port of the container", name)
		}
	}
	for _, resources := range []core.ResourceList{c.Resources.Requests, c.Resources.Limits} {
		for name, quantity := range resources {
			known := []core.ResourceName{core.ResourceCPU, core.ResourceMemory, core.ResourceEphemeralStorage, "nvidia.com/gpu"}
			demand(slices.Contains(known, name) && quantity.Sign() > 0, "%s of %s", quantity.String(), name)
		}
	}
	for name, requested := range c.Resources.Requests {
		limit, isLimited := c.Resources.Limits[name]
		demand(isLimited && requested.Cmp(limit) <= 0, "%s of %s are requested, beyond the limit", requested.String(), name)
	}
	cpus := c.Resources.Limits[core.ResourceCPU]
	demand(argument(c, "threads") == cpus.String(), "-threads is %q, but the container has %s CPUs", argument(c, "threads"), cpus.String())
	for _, variable := range c.Env {
		from := variable.ValueFrom
		isNamed := from != nil && from.SecretKeyRef != nil && from.SecretKeyRef.Name != "" && from.SecretKeyRef.Key != ""
		demand(variable.Name != "" && (variable.Value != "" || isNamed), "the variable %q has no value", variable.Name)
	}
	mounted := map[string]bool{}
	for _, mount := range c.VolumeMounts {
		demand(strings.HasPrefix(argument(c, "model"), mount.MountPath+"/"), "%q is mounted, but the model is %q", mount.MountPath, argument(c, "model"))
		mounted[mount.Name] = true
	}
	for _, volume := range volumes {
		demand(mounted[volume.Name], "the volume %q is not mounted", volume.Name)
		demand(volume.PersistentVolumeClaim != nil && volume.PersistentVolumeClaim.ClaimName != "", "the volume %q has no claim", volume.Name)
	}
	demand(len(volumes) == len(mounted), "%d volumes are mounted, but there are %d", len(mounted), len(volumes))
	return errors.Join(wrong...)
}

// argument returns the value of a flag of the server.
func argument(c core.Container, name string) string {
	for _, text := range c.Args {
		if value, found := strings.CutPrefix(text, "-"+name+"="); found {
			return value
		}
	}
	return ""
}

func documents(t *testing.T) (documents [][]byte) {
	t.Helper()
	for _, name := range []string{"server.yaml", "pool.yaml", "route.yaml"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, bytes.Split(text, []byte("\n---\n"))...)
	}
	return documents
}

func wrong(documents [][]byte) error {
	d, err := decode(documents)
	if err != nil {
		return err
	}
	return d.check()
}

func TestTheManifestsAreValid(t *testing.T) {
	if err := wrong(documents(t)); err != nil {
		t.Error(err)
	}
}

// Each key of each manifest is misspelled once.
func TestAMisspelledFieldIsFound(t *testing.T) {
	all := documents(t)
	misspelled := 0
	for i, document := range all {
		var tree map[string]any
		if err := yaml.Unmarshal(document, &tree); err != nil {
			t.Fatal(err)
		}
		check := func(path string) {
			text, err := yaml.Marshal(tree)
			if err != nil {
				t.Fatal(err)
			}
			changed := slices.Clone(all)
			changed[i] = text
			if wrong(changed) == nil {
				t.Errorf("%s can be misspelled", path)
			}
			misspelled++
		}
		misspell(fmt.Sprint(tree["kind"]), tree, check)
		if err := wrong(all); err != nil {
			t.Fatal(err)
		}
	}
	if misspelled < 80 {
		t.Errorf("only %d fields were misspelled", misspelled)
	}
}

// misspell calls check with each key below value misspelled in turn.
func misspell(path string, value any, check func(path string)) {
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			misspell(path+"."+key, value[key], check)
			below := value[key]
			delete(value, key)
			value[key+"x"] = below
			check(path + "." + key)
			delete(value, key+"x")
			value[key] = below
		}
	case []any:
		for i, element := range value {
			misspell(fmt.Sprintf("%s[%d]", path, i), element, check)
		}
	}
}

func TestWhatDoesNotFitTogetherIsFound(t *testing.T) {
	cases := []struct{ from, to string }{
		{"kind: Deployment", "kind: StatefulSet"},
		{"apiVersion: inference.networking.k8s.io/v1", "apiVersion: inference.networking.x-k8s.io/v1alpha2"},
		{"matchLabels:\n      app: nanovllm", "matchLabels:\n      app: other"},
		{"selector:\n    app: nanovllm", "selector:\n    app: other"},
		{"targetPort: http", "targetPort: web"},
		{"number: 8000", "number: 8001"},
		{"failureMode: FailOpen", "failureMode: Open"},
		{"kind: InferencePool\n          name: nanovllm", "kind: InferencePool\n          name: other"},
		{"path: /health", "path: /healthz"},
		{"-drain=30s", "-drain=60s"},
		{"-threads=4", "-threads=8"},
		{"claimName: models", "claimName: \"\""},
		{"memory: 4Gi", "memory: 4Gib"},
		{"memory: 4Gi", "memory: 8Gi"},
		{"-model=/models/demo", "-model=/model/demo"},
		{"name: nanovllm\n", "name: Nano vLLM\n"},
		{"request: 600s", "request: 10 minutes"},
		{"request: 600s", "request: 1.5s"},
		{"replicas: 2", "replicas: two"},
		{"replicas: 2", "replicas: 2\n  replicas: 3"},
	}
	for _, c := range cases {
		isChanged := false
		changed := documents(t)
		for i, document := range changed {
			if !isChanged && bytes.Contains(document, []byte(c.from)) {
				changed[i], isChanged = bytes.Replace(document, []byte(c.from), []byte(c.to), 1), true
			}
		}
		if !isChanged {
			t.Errorf("no manifest has %q", c.from)
		} else if wrong(changed) == nil {
			t.Errorf("%q can be %q", c.from, c.to)
		}
	}
}
