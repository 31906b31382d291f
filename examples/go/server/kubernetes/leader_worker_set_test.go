package kubernetes

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// group is the manifest of one model on several pods.
const group = "../../../distributed/leader-worker-set/group.yaml"

// A leaderWorkerSet has the fields of LeaderWorkerSet in leaderworkerset.x-k8s.io/v1 that the manifest uses.
type leaderWorkerSet struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Replicas             int `json:"replicas"`
		LeaderWorkerTemplate struct {
			Size           int                  `json:"size"`
			RestartPolicy  string               `json:"restartPolicy"`
			WorkerTemplate core.PodTemplateSpec `json:"workerTemplate"`
		} `json:"leaderWorkerTemplate"`
	} `json:"spec"`
}

// wrongGroup returns everything that is wrong with a manifest.
func wrongGroup(text []byte) error {
	var set leaderWorkerSet
	if err := yaml.UnmarshalStrict(text, &set); err != nil {
		return err
	}
	var wrong []error
	demand := func(holds bool, format string, args ...any) {
		if !holds {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	demand(set.APIVersion == "leaderworkerset.x-k8s.io/v1" && set.Kind == "LeaderWorkerSet", "%s %s", set.APIVersion, set.Kind)
	demand(len(validation.IsDNS1123Label(set.Metadata.Name)) == 0, "%q is not the name of an object", set.Metadata.Name)
	template := set.Spec.LeaderWorkerTemplate
	demand(set.Spec.Replicas > 0 && template.Size > 1, "%d groups of %d pods", set.Spec.Replicas, template.Size)
	demand(template.RestartPolicy == "RecreateGroupOnPodRestart", "restartPolicy is %q: no process joins again", template.RestartPolicy)
	pod := template.WorkerTemplate.Spec
	demand(len(pod.Containers) == 1, "%d containers", len(pod.Containers))
	for _, c := range pod.Containers {
		demand(len(validation.IsDNS1123Label(c.Name)) == 0 && c.Image != "", "%q is not the name of a container, or there is no image", c.Name)
		demand(slices.Contains(c.Args, "--distributed"), "the program does not ask which process it is")
		at := slices.Index(c.Args, "--tensor-parallel-size") + 1
		ranks := 0
		if at > 0 && at < len(c.Args) {
			ranks, _ = strconv.Atoi(c.Args[at])
		}
		demand(ranks > 0 && template.Size > 0 && ranks%template.Size == 0, "%d ranks on %d pods", ranks, template.Size)
		demand(len(c.Ports) == 1 && c.Ports[0].ContainerPort == 29501 && len(validation.IsValidPortName(c.Ports[0].Name)) == 0, "ports: %v", c.Ports)
		for name, requested := range c.Resources.Requests {
			limit, isLimited := c.Resources.Limits[name]
			demand(requested.Sign() > 0 && isLimited && requested.Cmp(limit) <= 0, "%s of %s are requested, beyond the limit", requested.String(), name)
		}
		demand(len(c.Resources.Requests) == 2 && len(c.Resources.Limits) == 2, "resources: %v", c.Resources)
		security := c.SecurityContext
		demand(security != nil && security.RunAsNonRoot != nil && *security.RunAsNonRoot && security.ReadOnlyRootFilesystem != nil &&
			security.AllowPrivilegeEscalation != nil && !*security.AllowPrivilegeEscalation, "the container may do more than it must")
		demand(len(c.VolumeMounts) == 1 && len(pod.Volumes) == 1 && c.VolumeMounts[0].Name == pod.Volumes[0].Name && c.VolumeMounts[0].ReadOnly &&
			c.VolumeMounts[0].MountPath != "", "the volumes that are mounted are not those that there are")
	}
	for _, volume := range pod.Volumes {
		demand(volume.PersistentVolumeClaim != nil && volume.PersistentVolumeClaim.ClaimName != "", "the volume %q has no claim", volume.Name)
	}
	return errors.Join(wrong...)
}

func TestTheGroupIsValid(t *testing.T) {
	text, err := os.ReadFile(group)
	if err != nil {
		t.Fatal(err)
	}
	if err := wrongGroup(text); err != nil {
		t.Error(err)
	}
	for _, change := range [][2]string{
		{"size: 2", "size: 3"}, {"- --distributed", "- --distribute"}, {"RecreateGroupOnPodRestart", "None"}, {"29501", "29502"},
		{"readOnly: true", "readOnly: false"}, {"16Gi", "16Gib"}, {"claimName: models", "claimName: \"\""},
	} {
		changed := bytes.Replace(text, []byte(change[0]), []byte(change[1]), 1)
		if bytes.Equal(changed, text) {
			t.Errorf("the manifest has no %q", change[0])
		} else if wrongGroup(changed) == nil {
			t.Errorf("%q can be %q", change[0], change[1])
		}
	}
}

// Each key of the manifest is misspelled once.
func TestAMisspelledFieldOfTheGroupIsFound(t *testing.T) {
	text, err := os.ReadFile(group)
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	misspell("LeaderWorkerSet", tree, func(path string) {
		changed, err := yaml.Marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		if wrongGroup(changed) == nil {
			t.Errorf("%s can be misspelled", path)
		}
	})
}
