#include "common/stats.h"

int ds_median_index(const double *v, int n)
{
    for (int i = 0; i < n; i++) {
        int rank = 0;                      /* place of v[i] in stable sorted order */
        for (int j = 0; j < n; j++) rank += v[j] < v[i] || (v[j] == v[i] && j < i);
        if (rank == (n - 1) / 2) return i;
    }
    return 0;
}

double ds_min(const double *v, int n)
{
    double m = v[0];
    for (int i = 1; i < n; i++) m = v[i] < m ? v[i] : m;
    return m;
}

double ds_max(const double *v, int n)
{
    double m = v[0];
    for (int i = 1; i < n; i++) m = v[i] > m ? v[i] : m;
    return m;
}
